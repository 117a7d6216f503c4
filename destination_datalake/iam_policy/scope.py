"""The resources that a configuration names, by ARN."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from destination_datalake.aws.address import S3Address, partition_of
from destination_datalake.config.groups.encryption import SseKms
from destination_datalake.config.groups.governance import Grant, TableTags
from destination_datalake.config.groups.maintenance import GlueOptimizers
from destination_datalake.config.options import Config
from destination_datalake.errors import ConfigError
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.tables.naming import TableNaming

_ROLE_ACCOUNT = re.compile(r"^arn:[^:]+:iam::(\d{12}):role/")

# The characters of a policy document (IAM API: policyDocumentType); "*" matches any run of others.
_NOT_IN_POLICIES = re.compile(r"[^\x20-\xff]+")


@dataclass(frozen=True, slots=True)
class Scope:
    """What the statements of one configuration's policy are about.

    `databases` begins with lakeformation_database_name. `warehouse` and `outside` are folders in S3, without a slash at
    the end: that of bucket_name and bucket_prefix, and those of tables elsewhere (follow_table_location).
    """

    partition: str
    region: str
    catalog_region: str
    catalog_account: str
    warehouse: S3Address
    outside: tuple[S3Address, ...]
    databases: tuple[str, ...]
    kms_key_arn: str | None
    registration_role_arn: str | None
    optimizer_role_arn: str | None = None

    @classmethod
    def of(cls, config: Config, streams: Iterable[StreamId] = (), outside: Iterable[S3Address] = ()) -> Self:
        """Return the scope of a configuration; `streams` have databases of their own if they have namespaces.

        Raises ConfigError if no option tells the account of the Data Catalog.
        """
        encryption, maintenance = config.encryption, config.maintenance
        return cls(
            partition=partition_of(config.region),
            region=config.region,
            catalog_region=config.glue_region or config.region,
            catalog_account=_catalog_account(config),
            warehouse=S3Address(config.bucket_name, config.key().rstrip("/")),
            outside=tuple(S3Address(address.bucket, address.key.strip("/")) for address in outside),
            databases=_databases(config, streams),
            kms_key_arn=encryption.kms_key_arn if isinstance(encryption, SseKms) else None,
            registration_role_arn=config.lake_formation.registration_role_arn,
            optimizer_role_arn=maintenance.role_arn if isinstance(maintenance, GlueOptimizers) else None,
        )

    @property
    def folders(self) -> tuple[S3Address, ...]:
        """The warehouse and the folders outside it."""
        return (self.warehouse, *self.outside)

    def replaced(self) -> tuple[str, ...]:
        """The names of folders and databases that a policy document cannot hold, so that wildcards stand for them."""
        names = (*(folder.key for folder in self.folders), *self.databases)
        return tuple(name for name in names if in_policy(name) != name)

    @property
    def database(self) -> str:
        """The database of streams without a namespace, of rejects and of `check`."""
        return self.databases[0]

    def objects(self) -> tuple[str, ...]:
        """The ARNs of all objects in the folders."""
        return tuple(self.s3(f"{address.bucket}/{_under(address)}") for address in self.folders)

    def s3(self, name: str) -> str:
        """The ARN of a bucket, of a folder or of objects."""
        return in_policy(f"arn:{self.partition}:s3:::{name}")

    def catalog(self, *names: str) -> tuple[str, ...]:
        """The ARNs of the Data Catalog and of these resources in it, such as `database/landing`.

        Glue authorizes a request for a resource together with the resources that contain it:
        https://docs.aws.amazon.com/glue/latest/dg/glue-specifying-resource-arns.html
        """
        root = f"arn:{self.partition}:glue:{self.catalog_region}:{self.catalog_account}"
        return tuple(in_policy(f"{root}:{name}") for name in ("catalog", *names))

    def tables(self, databases: Sequence[str], *names: str) -> tuple[str, ...]:
        """The ARNs of tables with these names or patterns in each database, and of what contains them."""
        in_databases = [f"database/{database}" for database in databases]
        return self.catalog(*in_databases, *(f"table/{database}/{name}" for database in databases for name in names))


def in_policy(text: str) -> str:
    """Return text with what a policy document cannot hold replaced by the wildcard `*`."""
    return _NOT_IN_POLICIES.sub("*", text)


def prefixes(addresses: Iterable[S3Address]) -> tuple[str, ...]:
    """The prefixes of the keys in folders, as the condition key `s3:prefix` has them."""
    return tuple(in_policy(_under(address)) for address in addresses)


def _under(folder: S3Address) -> str:
    return f"{folder.key}/*" if folder.key else "*"


def _catalog_account(config: Config) -> str:
    credentials = config.credentials
    role_account = _ROLE_ACCOUNT.match(credentials.role_arn) if credentials.credentials_title == "IAM Role" else None
    account = config.glue_catalog_id or config.aws_account_id or (role_account[1] if role_account else None)
    if account is None:
        raise ConfigError(
            "The policy names databases and tables by account, and no option tells it. Set aws_account_id, or "
            "glue_catalog_id if the Data Catalog belongs to another account."
        )
    return account


def _databases(config: Config, streams: Iterable[StreamId]) -> tuple[str, ...]:
    naming = TableNaming.of(config)
    governance = config.lake_formation
    options: tuple[Grant | TableTags, ...] = (*governance.grants, *governance.table_tags)
    named = (each.database for each in options if each.database)
    others = {*(naming.table_of(stream).database for stream in streams), *named} - {naming.database}
    return (naming.database, *sorted(others))
