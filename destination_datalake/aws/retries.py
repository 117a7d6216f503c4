"""How often Arrow's S3 client, through which PyIceberg reads and writes metadata, asks again."""

from pyarrow.fs import AwsStandardS3RetryStrategy


class PatientRetries(AwsStandardS3RetryStrategy):
    """As often as our own clients do (PyIceberg's option `s3.retry-strategy-impl` names a class without arguments)."""

    def __init__(self) -> None:
        super().__init__(max_attempts=10)
