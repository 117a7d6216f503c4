output "database_name" {
  description = "The namespace's database"
  value       = local.database
}

output "opt_in_commands" {
  description = "Commands to run once, as data lake administrator, so that Lake Formation decides for these principals"
  value = local.is_hybrid ? join("\n", concat(
    [
      "aws lakeformation create-lake-formation-opt-in --region ${local.region} --principal DataLakePrincipalIdentifier=${var.role_arn} --resource '{\"Database\": {\"CatalogId\": \"${local.account_id}\", \"Name\": \"${local.database}\"}}'",
      "aws lakeformation create-lake-formation-opt-in --region ${local.region} --principal DataLakePrincipalIdentifier=${var.role_arn} --resource '{\"Table\": {\"CatalogId\": \"${local.account_id}\", \"DatabaseName\": \"${local.database}\", \"TableWildcard\": {}}}'",
    ],
    local.has_reader ? [
      "aws lakeformation create-lake-formation-opt-in --region ${local.region} --principal DataLakePrincipalIdentifier=${var.reader_principal_arn} --resource '{\"Database\": {\"CatalogId\": \"${local.account_id}\", \"Name\": \"${local.database}\"}}'",
      "aws lakeformation create-lake-formation-opt-in --region ${local.region} --principal DataLakePrincipalIdentifier=${var.reader_principal_arn} --resource '{\"Table\": {\"CatalogId\": \"${local.account_id}\", \"DatabaseName\": \"${local.database}\", \"TableWildcard\": {}}}'",
    ] : []
  )) : null
}

output "revoke_command" {
  description = "Command to run once, as data lake administrator, unless new databases have no default permissions"
  value       = local.is_managed ? "aws lakeformation revoke-permissions --region ${local.region} --principal DataLakePrincipalIdentifier=IAM_ALLOWED_PRINCIPALS --permissions ALL --resource '{\"Database\": {\"CatalogId\": \"${local.account_id}\", \"Name\": \"${local.database}\"}}'" : null
}
