"""Messages about invalid options: one sentence each with the option, its value and what it must be. Never a secret."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from destination_datalake.config.base import choices


@dataclass(frozen=True, slots=True)
class Expects:
    """What a field must be, as an annotation of it: completes "It must be …"."""

    what: str


def invalid_options(
    error: ValidationError, model: type[BaseModel], variants: Mapping[str, type[BaseModel]]
) -> Iterator[str]:
    """Yield a sentence for each problem that pydantic has found in `model`'s input.

    `variants` are the models in discriminated unions, by the value that chooses them.
    """
    for problem in error.errors():
        yield _sentence(problem["type"], problem["loc"], problem.get("input"), model, variants)


_OF_S3_DATA_LAKE: Mapping[str, str] = {
    "access_key_id": "credentials.aws_access_key_id, with credentials_title IAM User",
    "secret_access_key": "credentials.aws_secret_access_key",
    "s3_bucket_name": "bucket_name",
    "s3_bucket_region": "region",
    "s3_endpoint": "endpoint_url",
    "warehouse_location": "bucket_name and bucket_prefix",
    "main_branch_name": "no option: syncs write to the branch main",
    "flush_batch_size_mb": "batch_size_mb",
    "normalize_column_names": "no option: existing columns keep their names",
    "catalog_type.glue_id": "glue_catalog_id, if it is another account's",
    "catalog_type.role_arn": "credentials.role_arn, with credentials_title IAM Role",
    "catalog_type.database_name": "lakeformation_database_name",
    "catalog_type": "no option: tables are in the Glue Data Catalog",
}
"""The options of Airbyte's S3 Data Lake destination, and those of this connector that mean the same."""


def of_s3_data_lake(options: Mapping[str, Any]) -> str | None:
    """Return what the options of S3 Data Lake are here, if these are such; None if not. Quotes no value but a type."""
    if not {"warehouse_location", "catalog_type", "s3_bucket_name"} & options.keys():
        return None
    catalog = options.get("catalog_type")
    given = {*options, *(f"catalog_type.{key}" for key in catalog)} if isinstance(catalog, Mapping) else {*options}
    meant = "; ".join(f"{key} is {option}" for key, option in _OF_S3_DATA_LAKE.items() if key in given)
    kind = catalog.get("catalog_type") if isinstance(catalog, Mapping) else None
    other = (
        f" Tables in a catalog of type {kind} cannot be continued."
        if kind in ("NESSIE", "REST", "POLARIS")
        else " With naming.style preserve, its tables are continued."
    )
    return (
        f"These are options of Airbyte's S3 Data Lake destination: {meant}.{other} docs/operating/migrating.md has the "
        "whole configuration."
    )


def quoted(name: str, value: object) -> str:
    """Return the option's value after a space; nothing if it may hold a secret or is an object or a list."""
    if name.startswith(("credentials", "spark", "endpoint_url")) or isinstance(value, dict | list):
        return ""
    # As JSON, as in the configuration: a quoted "256" shows that it is not a number.
    text = json.dumps(value, ensure_ascii=False)
    return f" {text}" if len(text) <= 80 else f" {text[:80]}…"


def _sentence(
    kind: str,
    location: tuple[int | str, ...],
    value: object,
    model: type[BaseModel],
    variants: Mapping[str, type[BaseModel]],
) -> str:
    # Pydantic adds the chosen variant's tag to a location inside a union; it is not in the user's configuration.
    name = ".".join(str(step) for step in location if step not in variants)
    expected = _expectation(location, model, variants)
    must_be = f"It must be {expected}." if expected else "Correct it."
    if kind == "missing":
        return f"{name} is missing. {must_be}"
    if kind == "union_tag_not_found":
        return f"{name} is incomplete. {must_be}"
    return f"{name}{quoted(name, value)} is not valid. {must_be}"


def _expectation(
    location: tuple[int | str, ...], model: type[BaseModel], variants: Mapping[str, type[BaseModel]]
) -> str | None:
    """Return what the field at `location` must be; inside a field without a model of its own, what that must be."""
    found: str | None = None
    for step in location:
        if step in variants:
            model = variants[str(step)]
            continue
        if isinstance(step, int):
            continue
        field = model.model_fields.get(step)
        if field is None:
            break
        found = next((item.what for item in field.metadata if isinstance(item, Expects)), _by_type(field) or found)
        # An object, or a list of objects.
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                model = kind
    return found


def _by_type(field: FieldInfo) -> str | None:
    """Return what a field must be, if its type says all."""
    values = ["true", "false"] if field.annotation is bool else choices(field.annotation)
    return " or ".join(filter(None, [", ".join(values[:-1]), *values[-1:]])) or None
