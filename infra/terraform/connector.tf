resource "aws_iam_role" "connector_role" {
  description          = "Assumed by the connector"
  max_session_duration = var.max_session_duration
  assume_role_policy   = data.aws_iam_policy_document.connector_role.json
}

data "aws_iam_policy_document" "connector_role" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "AWS"
      identifiers = [var.trusted_principal_arn]
    }

    condition {
      test     = "StringEquals"
      variable = "sts:ExternalId"
      values   = [var.external_id]
    }
  }
}

resource "aws_iam_role_policy" "connector_policy" {
  name   = "destination-datalake"
  role   = aws_iam_role.connector_role.id
  policy = data.aws_iam_policy_document.connector_policy.json
}

# What `destination-datalake iam-policy` prints for the output configuration.
data "aws_iam_policy_document" "connector_policy" {
  statement {
    sid       = "Objects"
    actions   = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
    resources = ["arn:${local.partition}:s3:::${var.bucket_name}/${var.bucket_prefix}/*"]
  }

  statement {
    sid       = "Folders"
    actions   = ["s3:ListBucket"]
    resources = ["arn:${local.partition}:s3:::${var.bucket_name}"]

    condition {
      test     = "StringLike"
      variable = "s3:prefix"
      values   = ["${var.bucket_prefix}/*"]
    }
  }

  statement {
    sid       = "Key"
    actions   = ["kms:Decrypt", "kms:GenerateDataKey"]
    resources = [local.key_arn]

    condition {
      test     = "StringEquals"
      variable = "kms:ViaService"
      values   = ["s3.${local.region}.${local.url_suffix}"]
    }
  }

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

  statement {
    sid     = "Rejects"
    actions = ["glue:BatchCreatePartition"]
    resources = [
      "${local.glue_arn}:catalog",
      "${local.glue_arn}:database/${var.database_name}",
      "${local.glue_arn}:table/${var.database_name}/airbyte_rejects",
      "${local.glue_arn}:table/${var.database_name}/airbyte_check_*",
    ]
  }

  statement {
    sid     = "CheckedTables"
    actions = ["glue:DeleteTable"]
    resources = [
      "${local.glue_arn}:catalog",
      "${local.glue_arn}:database/${var.database_name}",
      "${local.glue_arn}:table/${var.database_name}/airbyte_check_*",
    ]
  }

  statement {
    sid     = "ExistingTables"
    actions = ["glue:GetTables"]
    resources = [
      "${local.glue_arn}:catalog",
      "${local.glue_arn}:database/${var.database_name}",
      "${local.glue_arn}:table/${var.database_name}/*",
    ]
  }

  dynamic "statement" {
    for_each = local.is_governed ? [1] : []

    content {
      sid       = "LakeFormation"
      actions   = ["lakeformation:GetDataLakeSettings", "lakeformation:ListPermissions", "lakeformation:ListResources"]
      resources = ["*"]
    }
  }
}
