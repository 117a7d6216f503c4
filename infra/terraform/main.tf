# A data lake for the destination: bucket, encryption key, Glue database, a least-privilege role for the connector, and
# Lake Formation. The output configuration is the connector's configuration.
#
# It creates what infra/cloudformation/datalake.yaml creates; the comments there say why each thing is as it is.
# A resource has the name that it has there, in snake case.

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

locals {
  account_id = data.aws_caller_identity.current.account_id
  partition  = data.aws_partition.current.partition
  region     = data.aws_region.current.region
  url_suffix = data.aws_partition.current.dns_suffix

  creates_bucket      = var.create_bucket
  creates_key         = var.existing_key_arn == ""
  requires_header     = var.require_encryption_header
  is_governed         = var.lake_formation_mode != "none"
  is_managed          = var.lake_formation_mode == "managed"
  is_hybrid           = var.lake_formation_mode == "hybrid"
  has_reader          = local.is_governed && var.reader_principal_arn != ""
  has_tag             = local.is_governed && var.lf_tag_key != ""
  creates_tag         = local.has_tag && var.create_lf_tag
  has_work_group      = var.create_athena_work_group
  has_stream          = var.create_event_stream
  has_governed_stream = local.has_stream && local.is_governed

  key_arn  = local.creates_key ? aws_kms_key.data_key[0].arn : var.existing_key_arn
  bucket   = local.creates_bucket ? aws_s3_bucket.data_bucket[0].id : var.bucket_name
  database = aws_cloudformation_stack.database.outputs["Name"]
  glue_arn = "arn:${local.partition}:glue:${local.region}:${local.account_id}"
}

# ------------------------------------------------------------------------------------------------------------------ key

resource "aws_kms_key" "data_key" {
  count = local.creates_key ? 1 : 0

  description             = "Encrypts the data lake"
  enable_key_rotation     = true
  deletion_window_in_days = 30
  policy                  = data.aws_iam_policy_document.data_key.json

  lifecycle {
    prevent_destroy = true
  }
}

data "aws_iam_policy_document" "data_key" {
  statement {
    sid       = "AccountAdministration"
    actions   = ["kms:*"]
    resources = ["*"]

    principals {
      type        = "AWS"
      identifiers = ["arn:${local.partition}:iam::${local.account_id}:root"]
    }
  }
}

resource "aws_kms_alias" "data_key_alias" {
  count = local.creates_key ? 1 : 0

  name          = "alias/${var.name}"
  target_key_id = aws_kms_key.data_key[0].key_id
}

# --------------------------------------------------------------------------------------------------------------- bucket

resource "aws_s3_bucket" "data_bucket" {
  count = local.creates_bucket ? 1 : 0

  bucket = var.bucket_name

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "data_bucket" {
  count = local.creates_bucket ? 1 : 0

  bucket = aws_s3_bucket.data_bucket[0].id

  rule {
    bucket_key_enabled = true

    apply_server_side_encryption_by_default {
      sse_algorithm     = "aws:kms"
      kms_master_key_id = local.key_arn
    }
  }
}

resource "aws_s3_bucket_ownership_controls" "data_bucket" {
  count = local.creates_bucket ? 1 : 0

  bucket = aws_s3_bucket.data_bucket[0].id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_public_access_block" "data_bucket" {
  count = local.creates_bucket ? 1 : 0

  bucket = aws_s3_bucket.data_bucket[0].id

  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

# Rules for temporary objects only. None may ever reach <prefix>/<database>/.
resource "aws_s3_bucket_lifecycle_configuration" "data_bucket" {
  count = local.creates_bucket ? 1 : 0

  bucket = aws_s3_bucket.data_bucket[0].id

  rule {
    id     = "unfinished-uploads"
    status = "Enabled"

    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }
  }

  rule {
    id     = "staged-segments"
    status = "Enabled"

    filter {
      prefix = "${var.bucket_prefix}/_staging/"
    }

    expiration {
      days = 14
    }
  }

  rule {
    id     = "rejects"
    status = "Enabled"

    filter {
      prefix = "${var.bucket_prefix}/_errors/"
    }

    expiration {
      days = 90
    }
  }

  rule {
    id     = "query-results"
    status = local.has_work_group ? "Enabled" : "Disabled"

    filter {
      prefix = "athena-results/${var.bucket_prefix}/"
    }

    expiration {
      days = 30
    }
  }
}

resource "aws_s3_bucket_policy" "data_bucket_policy" {
  count = local.creates_bucket ? 1 : 0

  bucket = aws_s3_bucket.data_bucket[0].id
  policy = data.aws_iam_policy_document.data_bucket_policy[0].json

  lifecycle {
    prevent_destroy = true
  }
}

data "aws_iam_policy_document" "data_bucket_policy" {
  count = local.creates_bucket ? 1 : 0

  statement {
    sid       = "DenyWithoutTls"
    effect    = "Deny"
    actions   = ["s3:*"]
    resources = [aws_s3_bucket.data_bucket[0].arn, "${aws_s3_bucket.data_bucket[0].arn}/*"]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }

  dynamic "statement" {
    for_each = local.requires_header ? [1] : []

    content {
      sid       = "DenyWithoutEncryptionHeader"
      effect    = "Deny"
      actions   = ["s3:PutObject"]
      resources = ["${aws_s3_bucket.data_bucket[0].arn}/*"]

      principals {
        type        = "*"
        identifiers = ["*"]
      }

      condition {
        test     = "StringNotEquals"
        variable = "s3:x-amz-server-side-encryption"
        values   = ["aws:kms"]
      }
    }
  }
}

# ------------------------------------------------------------------------------------------------------------- database

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
              Description = "Tables of the data lake"
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

# --------------------------------------------------------------------------------------------------------------- Athena

resource "aws_athena_workgroup" "work_group" {
  count = local.has_work_group ? 1 : 0

  name        = var.name
  description = "Queries of the data lake"
  state       = "ENABLED"

  configuration {
    enforce_workgroup_configuration    = true
    publish_cloudwatch_metrics_enabled = true

    result_configuration {
      output_location       = "s3://${var.bucket_name}/athena-results/${var.bucket_prefix}/"
      expected_bucket_owner = local.account_id

      encryption_configuration {
        encryption_option = "SSE_KMS"
        kms_key_arn       = local.key_arn
      }
    }
  }
}
