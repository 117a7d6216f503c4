# One output for each option of the connector, and all of them as JSON.

output "aws_account_id" {
  description = "aws_account_id"
  value       = local.account_id
}

output "region" {
  description = "region"
  value       = local.region
}

output "bucket_name" {
  description = "bucket_name"
  value       = local.bucket
}

output "bucket_prefix" {
  description = "bucket_prefix"
  value       = var.bucket_prefix
}

output "database_name" {
  description = "lakeformation_database_name"
  value       = local.database
}

output "database_strategy" {
  description = "database_strategy"
  value       = "single"
}

output "role_arn" {
  description = "credentials.role_arn"
  value       = aws_iam_role.connector_role.arn
}

output "external_id" {
  description = "credentials.external_id"
  value       = var.external_id
}

output "kms_key_arn" {
  description = "encryption.kms_key_arn"
  value       = local.key_arn
}

output "lake_formation_mode" {
  description = "lake_formation.mode"
  value       = var.lake_formation_mode
}

output "configuration" {
  description = "The connector's configuration, as JSON"
  value = jsonencode({
    aws_account_id = local.account_id
    region         = local.region
    credentials = {
      credentials_title = "IAM Role"
      role_arn          = aws_iam_role.connector_role.arn
      external_id       = var.external_id
    }
    bucket_name                 = var.bucket_name
    bucket_prefix               = var.bucket_prefix
    lakeformation_database_name = local.database
    database_strategy           = "single"
    encryption = {
      encryption_type = "SSE-KMS"
      kms_key_arn     = local.key_arn
    }
    lake_formation = {
      mode = var.lake_formation_mode
    }
  })
}

output "location_role_arn" {
  description = "Role with which the location is registered"
  value       = local.is_governed ? aws_iam_role.location_role[0].arn : null
}

# The provider has no resource for opt-ins that names all tables of a database.
output "opt_in_commands" {
  description = "Commands to run once, as data lake administrator, so that Lake Formation decides for these principals"
  value = local.is_hybrid ? join("\n", concat(
    [
      "aws lakeformation create-lake-formation-opt-in --region ${local.region} --principal DataLakePrincipalIdentifier=${aws_iam_role.connector_role.arn} --resource '{\"Database\": {\"CatalogId\": \"${local.account_id}\", \"Name\": \"${local.database}\"}}'",
      "aws lakeformation create-lake-formation-opt-in --region ${local.region} --principal DataLakePrincipalIdentifier=${aws_iam_role.connector_role.arn} --resource '{\"Table\": {\"CatalogId\": \"${local.account_id}\", \"DatabaseName\": \"${local.database}\", \"TableWildcard\": {}}}'",
    ],
    local.has_reader ? [
      "aws lakeformation create-lake-formation-opt-in --region ${local.region} --principal DataLakePrincipalIdentifier=${var.reader_principal_arn} --resource '{\"Database\": {\"CatalogId\": \"${local.account_id}\", \"Name\": \"${local.database}\"}}'",
      "aws lakeformation create-lake-formation-opt-in --region ${local.region} --principal DataLakePrincipalIdentifier=${var.reader_principal_arn} --resource '{\"Table\": {\"CatalogId\": \"${local.account_id}\", \"DatabaseName\": \"${local.database}\", \"TableWildcard\": {}}}'",
    ] : []
  )) : null
}

# Nor for taking away what the account's settings give to everybody on new databases.
output "revoke_command" {
  description = "Command to run once, as data lake administrator, unless new databases have no default permissions"
  value       = local.is_managed ? "aws lakeformation revoke-permissions --region ${local.region} --principal DataLakePrincipalIdentifier=IAM_ALLOWED_PRINCIPALS --permissions ALL --resource '{\"Database\": {\"CatalogId\": \"${local.account_id}\", \"Name\": \"${local.database}\"}}'" : null
}

output "athena_work_group" {
  description = "Workgroup for queries"
  value       = local.has_work_group ? aws_athena_workgroup.work_group[0].name : null
}

output "event_stream_name" {
  description = "Kinesis stream to which events are put"
  value       = local.has_stream ? aws_kinesis_stream.event_stream[0].name : null
}

output "event_table" {
  description = "Table of the events"
  value       = local.has_stream ? "${local.database}.${aws_glue_catalog_table.event_table[0].name}" : null
}
