"""What the template's stream of events is in Terraform, as `counterparts` has it for everything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Attributes = dict[str, Any]
Found = Mapping[tuple[str, str], Attributes]


def _table(name: str, left: Attributes) -> Found:
    table = left["TableInput"]
    storage = table["StorageDescriptor"]
    iceberg = left["OpenTableFormatInput"]["IcebergInput"]
    return {
        ("aws_glue_catalog_table", name): {
            "catalog_id": left.pop("CatalogId"),
            "database_name": left.pop("DatabaseName"),
            "name": table.pop("Name"),
            "description": table.pop("Description"),
            "table_type": table.pop("TableType"),
            "open_table_format_input": [
                {
                    "iceberg_input": [
                        {"metadata_operation": iceberg.pop("MetadataOperation"), "version": iceberg.pop("Version")}
                    ]
                }
            ],
            "storage_descriptor": [
                {
                    "location": storage.pop("Location"),
                    "columns": [{"name": each["Name"], "type": each["Type"]} for each in storage.pop("Columns")],
                }
            ],
        }
    }


def _stream(name: str, left: Attributes) -> Found:
    return {
        ("aws_kinesis_stream", name): {
            # CloudFormation gives it a name.
            "name": "lake-events",
            "retention_period": left.pop("RetentionPeriodHours"),
            "encryption_type": left["StreamEncryption"].pop("EncryptionType"),
            "kms_key_id": left["StreamEncryption"].pop("KeyId"),
            "stream_mode_details": [{"stream_mode": left["StreamModeDetails"].pop("StreamMode")}],
        }
    }


def _log_group(name: str, left: Attributes) -> Found:
    return {("aws_cloudwatch_log_group", name): {"retention_in_days": left.pop("RetentionInDays")}}


def _log_stream(name: str, left: Attributes) -> Found:
    return {
        ("aws_cloudwatch_log_stream", name): {
            "log_group_name": left.pop("LogGroupName"),
            "name": left.pop("LogStreamName"),
        }
    }


def _delivery(name: str, left: Attributes) -> Found:
    assert left.pop("DeliveryStreamType") == "KinesisStreamAsSource"
    source = left["KinesisStreamSourceConfiguration"]
    iceberg = left["IcebergDestinationConfiguration"]
    [table] = iceberg.pop("DestinationTableConfigurationList")
    errors = iceberg["S3Configuration"]
    logging = iceberg["CloudWatchLoggingOptions"]
    return {
        ("aws_kinesis_firehose_delivery_stream", name): {
            "name": "lake-events",
            "destination": "iceberg",
            "kinesis_source_configuration": [
                {"kinesis_stream_arn": source.pop("KinesisStreamARN"), "role_arn": source.pop("RoleARN")}
            ],
            "iceberg_configuration": [
                {
                    "role_arn": iceberg.pop("RoleARN"),
                    "append_only": iceberg.pop("AppendOnly"),
                    "catalog_arn": iceberg["CatalogConfiguration"].pop("CatalogArn"),
                    "buffering_interval": iceberg["BufferingHints"].pop("IntervalInSeconds"),
                    "buffering_size": iceberg["BufferingHints"].pop("SizeInMBs"),
                    "retry_duration": iceberg["RetryOptions"].pop("DurationInSeconds"),
                    "s3_backup_mode": iceberg.pop("s3BackupMode"),
                    "destination_table_configuration": [
                        {
                            "database_name": table["DestinationDatabaseName"],
                            "table_name": table["DestinationTableName"],
                        }
                    ],
                    "s3_configuration": [
                        {
                            "bucket_arn": errors.pop("BucketARN"),
                            "role_arn": errors.pop("RoleARN"),
                            "compression_format": errors.pop("CompressionFormat"),
                            "error_output_prefix": errors.pop("ErrorOutputPrefix"),
                            "kms_key_arn": errors["EncryptionConfiguration"]["KMSEncryptionConfig"].pop("AWSKMSKeyARN"),
                        }
                    ],
                    "cloudwatch_logging_options": [
                        {
                            "enabled": logging.pop("Enabled"),
                            "log_group_name": logging.pop("LogGroupName"),
                            "log_stream_name": logging.pop("LogStreamName"),
                        }
                    ],
                }
            ],
        }
    }


RULES: Mapping[str, Callable[[str, Attributes], Found]] = {
    "AWS::Glue::Table": _table,
    "AWS::Kinesis::Stream": _stream,
    "AWS::KinesisFirehose::DeliveryStream": _delivery,
    "AWS::Logs::LogGroup": _log_group,
    "AWS::Logs::LogStream": _log_stream,
}
