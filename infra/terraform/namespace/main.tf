# A further database of a data lake, for the streams of one namespace. The module around this one has created the lake;
# its outputs are the variables of the same names. The connector's option database_strategy has to be namespace.
#
# It creates what infra/cloudformation/namespace.yaml creates.

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

locals {
  account_id = data.aws_caller_identity.current.account_id
  region     = data.aws_region.current.region

  is_governed = var.lake_formation_mode != "none"
  is_managed  = var.lake_formation_mode == "managed"
  is_hybrid   = var.lake_formation_mode == "hybrid"
  has_reader  = local.is_governed && var.reader_principal_arn != ""
  has_tag     = local.is_governed && var.lf_tag_key != ""

  database = aws_cloudformation_stack.database.outputs["Name"]
  glue_arn = "arn:${data.aws_partition.current.partition}:glue:${local.region}:${local.account_id}"
}

# A stack of one resource, because aws_glue_catalog_database cannot create a database whose new tables get no default
# permissions (github.com/hashicorp/terraform-provider-aws/issues/27295): each would get the group
# IAMAllowedPrincipals, which voids every grant.
resource "aws_cloudformation_stack" "database" {
  name = "${var.name}-database"

  template_body = jsonencode({
    Resources = {
      Database = {
        Type                = "AWS::Glue::Database"
        DeletionPolicy      = "Retain"
        UpdateReplacePolicy = "Retain"
        Properties = {
          CatalogId = local.account_id
          DatabaseInput = merge(
            {
              Name        = var.database_name
              Description = "Tables of a namespace of the data lake"
              LocationUri = "s3://${var.bucket_name}/${var.bucket_prefix}/${var.database_name}/"
            },
            local.is_managed ? { CreateTableDefaultPermissions = [] } : {}
          )
        }
      }
    }
    Outputs = {
      Name = {
        Value = { Ref = "Database" }
      }
    }
  })
}

# What `destination-datalake iam-policy --catalog` adds for a stream of the namespace.
resource "aws_iam_role_policy" "namespace_policy" {
  name   = "destination-datalake-${var.name}"
  role   = split("/", var.role_arn)[1]
  policy = data.aws_iam_policy_document.namespace_policy.json
}

data "aws_iam_policy_document" "namespace_policy" {
  statement {
    sid     = "Databases"
    actions = ["glue:CreateDatabase", "glue:GetDatabase"]
    resources = [
      "${local.glue_arn}:catalog",
      "${local.glue_arn}:database/${var.database_name}",
    ]
  }

  statement {
    sid     = "Tables"
    actions = ["glue:CreateTable", "glue:GetTable", "glue:UpdateTable"]
    resources = [
      "${local.glue_arn}:catalog",
      "${local.glue_arn}:database/${var.database_name}",
      "${local.glue_arn}:table/${var.database_name}/*",
    ]
  }
}

resource "aws_lakeformation_permissions" "connector_database_grant" {
  count = local.is_governed ? 1 : 0

  principal   = var.role_arn
  permissions = ["CREATE_TABLE", "DESCRIBE"]

  database {
    catalog_id = local.account_id
    name       = local.database
  }
}

resource "aws_lakeformation_permissions" "connector_tables_grant" {
  count = local.is_governed ? 1 : 0

  principal   = var.role_arn
  permissions = ["ALTER", "DELETE", "DESCRIBE", "INSERT"]

  table {
    catalog_id    = local.account_id
    database_name = local.database
    wildcard      = true
  }
}

resource "aws_lakeformation_permissions" "reader_database_grant" {
  count = local.has_reader ? 1 : 0

  principal   = var.reader_principal_arn
  permissions = ["DESCRIBE"]

  database {
    catalog_id = local.account_id
    name       = local.database
  }
}

resource "aws_lakeformation_permissions" "reader_tables_grant" {
  count = local.has_reader ? 1 : 0

  principal   = var.reader_principal_arn
  permissions = ["DESCRIBE", "SELECT"]

  table {
    catalog_id    = local.account_id
    database_name = local.database
    wildcard      = true
  }
}

resource "aws_lakeformation_resource_lf_tags" "database_tag" {
  count = local.has_tag ? 1 : 0

  database {
    catalog_id = local.account_id
    name       = local.database
  }

  lf_tag {
    catalog_id = local.account_id
    key        = var.lf_tag_key
    value      = var.lf_tag_value
  }
}
