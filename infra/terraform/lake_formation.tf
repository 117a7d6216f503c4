resource "aws_iam_role" "location_role" {
  count = local.is_governed ? 1 : 0

  description        = "Assumed by Lake Formation, to give engines access to the data"
  assume_role_policy = data.aws_iam_policy_document.location_role.json
}

data "aws_iam_policy_document" "location_role" {
  statement {
    actions = ["sts:AssumeRole", "sts:SetContext"]

    principals {
      type        = "Service"
      identifiers = ["lakeformation.amazonaws.com", "glue.amazonaws.com"]
    }
  }
}

resource "aws_iam_role_policy" "location_policy" {
  count = local.is_governed ? 1 : 0

  name   = "location"
  role   = aws_iam_role.location_role[0].id
  policy = data.aws_iam_policy_document.location_policy.json
}

data "aws_iam_policy_document" "location_policy" {
  statement {
    sid       = "Objects"
    actions   = ["s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
    resources = ["arn:${local.partition}:s3:::${var.bucket_name}/${var.bucket_prefix}/*"]
  }

  statement {
    sid       = "Listing"
    actions   = ["s3:ListBucket"]
    resources = ["arn:${local.partition}:s3:::${var.bucket_name}"]

    condition {
      test     = "StringLike"
      variable = "s3:prefix"
      values   = ["${var.bucket_prefix}/*"]
    }
  }

  statement {
    sid       = "Encryption"
    actions   = ["kms:Decrypt", "kms:GenerateDataKey"]
    resources = [local.key_arn]

    condition {
      test     = "StringEquals"
      variable = "kms:ViaService"
      values   = ["s3.${local.region}.${local.url_suffix}"]
    }
  }
}

resource "aws_lakeformation_resource" "location" {
  count      = local.is_governed ? 1 : 0
  depends_on = [aws_iam_role_policy.location_policy]

  arn                     = "arn:${local.partition}:s3:::${local.bucket}/${var.bucket_prefix}"
  role_arn                = aws_iam_role.location_role[0].arn
  use_service_linked_role = false
  hybrid_access_enabled   = local.is_hybrid
}

# --------------------------------------------------------------------------------------------------------------- grants

resource "aws_lakeformation_permissions" "connector_location_grant" {
  count      = local.is_governed ? 1 : 0
  depends_on = [aws_lakeformation_resource.location]

  principal   = aws_iam_role.connector_role.arn
  permissions = ["DATA_LOCATION_ACCESS"]

  data_location {
    catalog_id = local.account_id
    arn        = "arn:${local.partition}:s3:::${var.bucket_name}/${var.bucket_prefix}"
  }
}

resource "aws_lakeformation_permissions" "connector_database_grant" {
  count = local.is_governed ? 1 : 0

  principal   = aws_iam_role.connector_role.arn
  permissions = ["CREATE_TABLE", "DESCRIBE"]

  database {
    catalog_id = local.account_id
    name       = local.database
  }
}

resource "aws_lakeformation_permissions" "connector_tables_grant" {
  count = local.is_governed ? 1 : 0

  principal   = aws_iam_role.connector_role.arn
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

# -------------------------------------------------------------------------------------------------------------- LF-Tags

resource "aws_lakeformation_lf_tag" "data_tag" {
  count = local.creates_tag ? 1 : 0

  catalog_id = local.account_id
  key        = var.lf_tag_key
  values     = var.lf_tag_values
}

# One value: a resource has at most one value of each LF-Tag.
resource "aws_lakeformation_resource_lf_tags" "database_tag" {
  count = local.has_tag ? 1 : 0

  database {
    catalog_id = local.account_id
    name       = local.database
  }

  lf_tag {
    catalog_id = local.account_id
    key        = local.creates_tag ? aws_lakeformation_lf_tag.data_tag[0].key : var.lf_tag_key
    value      = var.lf_tag_values[0]
  }
}
