# Kinesis and Firehose, for events that land in an Iceberg table beside those of the connector.

resource "aws_glue_catalog_table" "event_table" {
  count = local.has_stream ? 1 : 0

  catalog_id    = local.account_id
  database_name = local.database
  name          = var.event_table_name
  description   = "Events that Firehose delivers"
  table_type    = "EXTERNAL_TABLE"

  open_table_format_input {
    iceberg_input {
      metadata_operation = "CREATE"
      version            = "2"
    }
  }

  storage_descriptor {
    location = "s3://${local.bucket}/${var.bucket_prefix}/${var.database_name}/${var.event_table_name}"

    columns {
      name = "event_id"
      type = "string"
    }

    columns {
      name = "event_type"
      type = "string"
    }

    columns {
      name = "event_time"
      type = "timestamp"
    }

    columns {
      name = "source"
      type = "string"
    }

    columns {
      name = "payload"
      type = "string"
    }
  }

  lifecycle {
    prevent_destroy = true
    # Columns that were added later, and what each commit writes, stay.
    ignore_changes = all
  }
}

resource "aws_kinesis_stream" "event_stream" {
  count = local.has_stream ? 1 : 0

  name             = "${var.name}-events"
  retention_period = 24
  encryption_type  = "KMS"
  kms_key_id       = local.key_arn

  stream_mode_details {
    stream_mode = "ON_DEMAND"
  }
}

resource "aws_cloudwatch_log_group" "delivery_log" {
  count = local.has_stream ? 1 : 0

  retention_in_days = 30

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_cloudwatch_log_stream" "delivery_log_stream" {
  count = local.has_stream ? 1 : 0

  log_group_name = aws_cloudwatch_log_group.delivery_log[0].name
  name           = "delivery"
}

resource "aws_iam_role" "delivery_role" {
  count = local.has_stream ? 1 : 0

  description        = "Assumed by Firehose, to deliver events"
  assume_role_policy = data.aws_iam_policy_document.delivery_role.json
}

data "aws_iam_policy_document" "delivery_role" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["firehose.amazonaws.com"]
    }

    condition {
      test     = "StringEquals"
      variable = "sts:ExternalId"
      values   = [local.account_id]
    }
  }
}

resource "aws_iam_role_policy" "delivery_policy" {
  count = local.has_stream ? 1 : 0

  name   = "delivery"
  role   = aws_iam_role.delivery_role[0].id
  policy = data.aws_iam_policy_document.delivery_policy[0].json
}

data "aws_iam_policy_document" "delivery_policy" {
  count = local.has_stream ? 1 : 0

  statement {
    sid       = "Events"
    actions   = ["kinesis:DescribeStream", "kinesis:GetRecords", "kinesis:GetShardIterator", "kinesis:ListShards"]
    resources = [aws_kinesis_stream.event_stream[0].arn]
  }

  statement {
    sid       = "EventDecryption"
    actions   = ["kms:Decrypt"]
    resources = [local.key_arn]

    condition {
      test     = "StringEquals"
      variable = "kms:ViaService"
      values   = ["kinesis.${local.region}.${local.url_suffix}"]
    }

    condition {
      test     = "StringEquals"
      variable = "kms:EncryptionContext:aws:kinesis:arn"
      values   = [aws_kinesis_stream.event_stream[0].arn]
    }
  }

  statement {
    sid     = "TableAndErrors"
    actions = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
    resources = [
      "arn:${local.partition}:s3:::${var.bucket_name}/${var.bucket_prefix}/${var.database_name}/${var.event_table_name}/*",
      "arn:${local.partition}:s3:::${var.bucket_name}/${var.bucket_prefix}/_errors/*",
    ]
  }

  statement {
    sid       = "Bucket"
    actions   = ["s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketMultipartUploads"]
    resources = ["arn:${local.partition}:s3:::${var.bucket_name}"]
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

  statement {
    sid     = "Catalog"
    actions = ["glue:GetDatabase", "glue:GetTable", "glue:UpdateTable"]
    resources = [
      "${local.glue_arn}:catalog",
      "${local.glue_arn}:database/${var.database_name}",
      "${local.glue_arn}:table/${var.database_name}/${var.event_table_name}",
    ]
  }

  statement {
    sid     = "Log"
    actions = ["logs:PutLogEvents"]
    resources = [
      "arn:${local.partition}:logs:${local.region}:${local.account_id}:log-group:${aws_cloudwatch_log_group.delivery_log[0].name}:log-stream:delivery",
    ]
  }
}

resource "aws_lakeformation_permissions" "delivery_location_grant" {
  count      = local.has_governed_stream ? 1 : 0
  depends_on = [aws_lakeformation_resource.location]

  principal   = aws_iam_role.delivery_role[0].arn
  permissions = ["DATA_LOCATION_ACCESS"]

  data_location {
    catalog_id = local.account_id
    arn        = "arn:${local.partition}:s3:::${var.bucket_name}/${var.bucket_prefix}"
  }
}

resource "aws_lakeformation_permissions" "delivery_database_grant" {
  count = local.has_governed_stream ? 1 : 0

  principal   = aws_iam_role.delivery_role[0].arn
  permissions = ["DESCRIBE"]

  database {
    catalog_id = local.account_id
    name       = local.database
  }
}

resource "aws_lakeformation_permissions" "delivery_table_grant" {
  count = local.has_governed_stream ? 1 : 0

  principal   = aws_iam_role.delivery_role[0].arn
  permissions = ["ALTER", "DESCRIBE", "INSERT"]

  table {
    catalog_id    = local.account_id
    database_name = local.database
    name          = aws_glue_catalog_table.event_table[0].name
  }
}

# Firehose tries its role when the stream is created: permissions come first.
resource "aws_kinesis_firehose_delivery_stream" "delivery" {
  count = local.has_stream ? 1 : 0
  depends_on = [
    aws_iam_role_policy.delivery_policy,
    aws_cloudwatch_log_stream.delivery_log_stream,
    aws_lakeformation_permissions.delivery_location_grant,
    aws_lakeformation_permissions.delivery_database_grant,
    aws_lakeformation_permissions.delivery_table_grant,
  ]

  name        = "${var.name}-events"
  destination = "iceberg"

  kinesis_source_configuration {
    kinesis_stream_arn = aws_kinesis_stream.event_stream[0].arn
    role_arn           = aws_iam_role.delivery_role[0].arn
  }

  iceberg_configuration {
    role_arn           = aws_iam_role.delivery_role[0].arn
    append_only        = true
    catalog_arn        = "${local.glue_arn}:catalog"
    buffering_interval = 300
    buffering_size     = 128
    retry_duration     = 300
    s3_backup_mode     = "FailedDataOnly"

    destination_table_configuration {
      database_name = local.database
      table_name    = aws_glue_catalog_table.event_table[0].name
    }

    s3_configuration {
      bucket_arn          = "arn:${local.partition}:s3:::${var.bucket_name}"
      role_arn            = aws_iam_role.delivery_role[0].arn
      compression_format  = "GZIP"
      error_output_prefix = "${var.bucket_prefix}/_errors/!{firehose:error-output-type}/${var.database_name}.${var.event_table_name}/dt=!{timestamp:yyyy-MM-dd}/"
      kms_key_arn         = local.key_arn
    }

    cloudwatch_logging_options {
      enabled         = true
      log_group_name  = aws_cloudwatch_log_group.delivery_log[0].name
      log_stream_name = "delivery"
    }
  }
}
