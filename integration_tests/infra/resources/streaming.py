"""Streams of events, their delivery, and its log."""

from __future__ import annotations

from integration_tests.infra.resources.resource import Aws, Properties, every
from integration_tests.infra.template import Made


def stream(aws: Aws, logical_name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::Kinesis::Stream."""
    assert made is None, "this resource is made once in these tests"
    kinesis, name = aws.client("kinesis"), aws.name(logical_name)
    with every(properties) as rest:
        kinesis.create_stream(StreamName=name, StreamModeDetails=rest.pop("StreamModeDetails"))
        kinesis.start_stream_encryption(StreamName=name, **rest.pop("StreamEncryption"))
        # What Kinesis keeps without being told.
        assert rest.pop("RetentionPeriodHours") == 24
    described = kinesis.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]
    return Made(name, {"Arn": described["StreamARN"]})


def log_group(aws: Aws, logical_name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::Logs::LogGroup."""
    logs, name = aws.client("logs"), aws.name(logical_name)
    if made is None:
        logs.create_log_group(logGroupName=name)
    with every(properties) as rest:
        logs.put_retention_policy(logGroupName=name, retentionInDays=rest.pop("RetentionInDays"))
    return Made(name)


def log_stream(aws: Aws, _name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::Logs::LogStream."""
    assert made is None, "this resource is replaced, not updated"
    with every(properties) as rest:
        name = rest.pop("LogStreamName")
        aws.client("logs").create_log_stream(logGroupName=rest.pop("LogGroupName"), logStreamName=name)
    return Made(name)


def delivery(aws: Aws, logical_name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::KinesisFirehose::DeliveryStream with a destination of Iceberg tables."""
    assert made is None, "this resource is made once in these tests"
    name = aws.name(logical_name)
    with every(properties) as rest:
        destination = {
            # The API writes two names otherwise than CloudFormation.
            "S3BackupMode" if option == "s3BackupMode" else option: {"CatalogARN": value["CatalogArn"]}
            if option == "CatalogConfiguration"
            else value
            for option, value in rest.pop("IcebergDestinationConfiguration").items()
        }
        answer = aws.client("firehose").create_delivery_stream(
            DeliveryStreamName=name,
            DeliveryStreamType=rest.pop("DeliveryStreamType"),
            KinesisStreamSourceConfiguration=rest.pop("KinesisStreamSourceConfiguration"),
            IcebergDestinationConfiguration=destination,
        )
    return Made(name, {"Arn": answer["DeliveryStreamARN"]})
