"""Options as users write them: files, their canonical form, defaults that depend on other options, and what is wrong.

Messages are one sentence each with the option, its value and what it must be. They never quote a secret.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from destination_datalake.config.base import AnyCase, Entries, Options, choices, models
from destination_datalake.config.spark import place_of
from destination_datalake.config.tables import default_partitioning
from destination_datalake.errors import ConfigError


def read_object(path: str, what: str) -> dict[str, Any]:
    """Return the JSON object in the file at `path`; `what` names it in messages.

    Raises ConfigError. Its messages never quote the content, which may hold secrets.
    """
    try:
        text = Path(path).read_bytes()
        if not text.strip():
            raise ConfigError(f"The {what} file {path} is empty.")
        content = json.loads(text, object_pairs_hook=partial(_object, what=f"{what} file {path}"))
    except OSError as error:
        raise ConfigError(f"The {what} file {path} cannot be read: {error.strerror}.") from error
    except json.JSONDecodeError as error:
        # Only its `msg`, never its `doc`, which is the content.
        where = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(f"The {what} file {path} is not valid JSON: {where}: {error.msg}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"The {what} file {path} is not valid JSON: byte {error.start + 1} is not UTF-8.") from None
    except RecursionError:
        raise too_deep(f"{what} file {path}") from None
    except ValueError:
        raise ConfigError(f"The {what} file {path} holds a number of more digits than anything here takes.") from None
    if not isinstance(content, dict):
        raise ConfigError(f"The {what} file {path} does not hold a JSON object.")
    return content


def _object(pairs: Sequence[tuple[str, Any]], what: str) -> dict[str, Any]:
    """Return a JSON object. Raises ConfigError for a key that it has twice: JSON lets the last one win."""
    members = dict(pairs)
    if len(members) < len(pairs):
        key = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ConfigError(f"The {what} has the key {json.dumps(key)} more than once in one object. Remove all but one.")
    return members


def too_deep(what: str) -> ConfigError:
    """Return the error for JSON that is nested more deeply than Python's parsers follow."""
    return ConfigError(f"The {what} is nested too deeply: hundreds of objects or arrays one inside the other.")


def normalised(options: Mapping[str, Any], model: type[Options]) -> dict[str, Any]:
    """Return the options of `model` that are set, in canonical form: as `spec.json` has them.

    Nulls and empty strings count as not set, inside objects too: forms send them for optional fields that were left
    blank. Blanks around a value are removed. Spark's settings stay as they are, except for nulls. Enumerations are
    accepted in any letter case, mappings as objects too, and `spark` without `mode`.
    """
    result: dict[str, Any] = {}
    for key, given in options.items():
        value = _stripped(given)
        if key in ("lakeformation_database_name", "table_prefix") and isinstance(value, str):
            # Glue stores names in lower case.
            value = value.lower()
        elif key == "bucket_prefix" and isinstance(value, str) and "://" not in value:
            value = "/".join(folder for folder in value.split("/") if folder.strip()).strip()
        if value is not None and value != "":
            result[key] = value
    lake_formation = result.get("lake_formation")
    if isinstance(lake_formation, dict):
        for name in ("grants", "table_tags"):
            if isinstance(entries := lake_formation.get(name), list):
                lake_formation[name] = [_in_lower_case(entry) for entry in entries]
    spark, as_given = result.get("spark"), options.get("spark")
    if isinstance(spark, dict) and isinstance(as_given, dict):
        result["spark"] = {"mode": place_of(spark), **spark}
        if "conf" in spark:
            result["spark"]["conf"] = _settings(as_given["conf"])
    return _canonical_object(result, model)


def _settings(conf: Any) -> Any:
    """Return Spark's settings as given, without nulls."""
    match conf:
        case dict():
            return {name: text for name, text in conf.items() if text is not None}
        case list():
            return [each for each in conf if not isinstance(each, dict) or each.get("value", "") is not None]
        case _:
            return conf


def _canonical_object(given: dict[str, Any], model: type[Options]) -> dict[str, Any]:
    fields = model.model_fields
    return {name: _canonical(value, fields[name]) if name in fields else value for name, value in given.items()}


def _canonical(value: Any, field: FieldInfo) -> Any:
    """Return a value as the option's type has it; one that does not fit as it is, for the models to refuse."""
    for item in field.metadata:
        if isinstance(item, Entries):
            return item.listed(value)
    match value:
        case str():
            if any(isinstance(item, AnyCase) for item in field.metadata):
                patterns = [each for item in field.metadata if (each := getattr(item, "pattern", None)) is not None]
                forms = (value, value.lower())
                return next((form for form in forms if all(re.match(each, form) for each in patterns)), value)
            return _choice(value, choices(field.annotation))
        case dict():
            model = chosen(value, list(models(field.annotation)))
            return value if model is None else _canonical_object(value, model)
        case list():
            model, values = next(models(field.annotation), None), choices(field.annotation)
            return [
                _canonical_object(each, model)
                if isinstance(each, dict) and model is not None
                else _choice(each, values)
                if isinstance(each, str)
                else each
                for each in value
            ]
        case _:
            return value


def _choice(value: str, values: Sequence[str]) -> str:
    return next((each for each in values if each.casefold() == value.casefold()), value)


def chosen(given: dict[str, Any], candidates: list[type[Options]]) -> type[Options] | None:
    """Return the model of several that an object means, by the constant that tells; None if it tells nothing."""
    if len(candidates) == 1:
        return candidates[0]
    for model in candidates:
        for name, field in model.model_fields.items():
            constants = choices(field.annotation)
            if len(constants) == 1 and str(given.get(name)).casefold() == constants[0].casefold():
                return model
    return None


def _in_lower_case(entry: Any) -> Any:
    """Return an entry about tables with the names of databases and tables as Glue stores them."""
    if not isinstance(entry, dict):
        return entry
    lowered = {name: entry[name].lower() for name in ("database", "table") if isinstance(entry.get(name), str)}
    return {**entry, **lowered}


def _stripped(value: Any) -> Any:
    match value:
        case dict():
            stripped = {key: _stripped(item) for key, item in value.items()}
            return {key: item for key, item in stripped.items() if item is not None and item != ""}
        case list():
            return [_stripped(item) for item in value]
        case str():
            return value.strip()
        case _:
            return value


def with_dependent_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the defaults that depend on other options: types, partitions, lake_formation.mode, the codec."""
    options = {**given}
    format_ = options.setdefault("format", {"format_type": "Parquet"})
    jsonl = isinstance(format_, dict) and format_.get("format_type") == "JSONL"
    table_type = options.setdefault("table_type", "HIVE" if jsonl else "ICEBERG")
    options.setdefault(
        "numeric_types", "int/decimal" if options.get("glue_catalog_float_as_decimal") is True else "int/float"
    )
    path_layout = options.get("path_layout", "hive")
    options.setdefault("partitioning", default_partitioning(str(path_layout)))
    # Other lakes partition by the time of arrival; AWS Datalake by the cursor.
    options.setdefault("partition_source", "cursor" if path_layout == "hive" else "extracted_at")
    if options.get("lakeformation_governed_tables") is True:
        lake_formation = options.setdefault("lake_formation", {})
        if isinstance(lake_formation, dict):
            options["lake_formation"] = {"mode": "managed", **lake_formation}
    if isinstance(format_, dict):
        codec = "UNCOMPRESSED" if jsonl else "ZSTD" if table_type == "ICEBERG" else "SNAPPY"
        options["format"] = {"compression_codec": codec, **format_}
    return options


def contradictions(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each pair of options that contradict each other."""
    format_ = given.get("format")
    if isinstance(format_, dict) and format_.get("format_type") == "JSONL" and given.get("table_type") == "ICEBERG":
        yield (
            "table_type ICEBERG cannot hold format_type JSONL: Iceberg tables are made of Parquet files. "
            "Set table_type to HIVE, or format_type to Parquet."
        )
    numeric_types = given.get("numeric_types")
    if given.get("glue_catalog_float_as_decimal") is True and numeric_types not in (None, "int/decimal", "decimal"):
        yield (
            f"glue_catalog_float_as_decimal true asks for decimal columns, numeric_types {numeric_types} for others. "
            "Set numeric_types to int/decimal, or glue_catalog_float_as_decimal to false."
        )
    if given.get("lakeformation_database_default_tag_key") and not _values(given):
        yield (
            "lakeformation_database_default_tag_key has no values: AWS assigns an LF-Tag with a value only. Set "
            "lakeformation_database_default_tag_values to one or more, separated by commas, or leave the key out."
        )
    naming = given.get("naming")
    style = naming.get("style", "snake_case") if isinstance(naming, dict) else "snake_case"
    if isinstance(naming, dict) and naming.get("split_numbers") is True and style in ("preserve", "aws_datalake"):
        yield (
            f"naming.split_numbers true splits names into words, which naming.style {style} does not. "
            "Set naming.style to snake_case, or naming.split_numbers to false."
        )
    batch, buffer = given.get("batch_size_mb", 256), given.get("buffer_size_mb", 4096)
    if isinstance(batch, int) and isinstance(buffer, int) and buffer < batch:
        yield (
            f"buffer_size_mb {buffer} is smaller than batch_size_mb {batch}: a batch would never fill. "
            "Lower batch_size_mb or raise buffer_size_mb."
        )


def _values(given: Mapping[str, Any]) -> bool:
    """Whether lakeformation_database_default_tag_values has any value; one that is no text is reported elsewhere."""
    values = given.get("lakeformation_database_default_tag_values")
    return any(value.strip() for value in values.split(",")) if isinstance(values, str) else values is not None


_SIMILAR = 0.7
_MISSPELT = 0.8
"""The ratios (`difflib`) from which a name is similar to another, and from which it is a misspelling of it."""


class UnknownOption(NamedTuple):
    """An option that the connector does not know, by its dotted name, and the one that may be meant.

    It is misspelt if it is much like one that is not given: what the user wanted would silently not happen.
    """

    name: str
    meant: str | None
    is_misspelt: bool

    def __str__(self) -> str:
        ignored = "" if self.is_misspelt else " is ignored"
        return f"Unknown option {self.name}{ignored}.{f' Did you mean {self.meant}?' if self.meant else ''}"


def unknown_options(given: Mapping[str, Any], model: type[Options], path: str = "") -> Iterator[UnknownOption]:
    """Yield the unknown options among those of `model` that are given, in canonical form, inside objects too."""
    fields = model.model_fields
    for name, value in given.items():
        if name in fields:
            for inner, each, kind in _objects(value, fields[name], f"{path}{name}"):
                yield from unknown_options(each, kind, f"{inner}.")
        else:
            yield _unknown(path, name, sorted(fields), given)


def _unknown(path: str, name: str, known: Sequence[str], given: Mapping[str, Any]) -> UnknownOption:
    similar, meant = max((SequenceMatcher(None, name.lower(), each).ratio(), each) for each in known)
    if similar < _SIMILAR or meant in given:
        return UnknownOption(f"{path}{name}", None, is_misspelt=False)
    return UnknownOption(f"{path}{name}", f"{path}{meant}", is_misspelt=similar >= _MISSPELT)


def _objects(value: Any, field: FieldInfo, path: str) -> Iterator[tuple[str, dict[str, Any], type[Options]]]:
    """Yield the objects in an option's value, each with its path and its model."""
    entries = [item.model for item in field.metadata if isinstance(item, Entries)]
    candidates = entries or list(models(field.annotation))
    items = enumerate(value) if isinstance(value, list) else ()
    places = {path: value} if isinstance(value, dict) else {f"{path}.{number}": each for number, each in items}
    for where, each in places.items():
        if isinstance(each, dict) and (model := chosen(each, candidates)) is not None:
            yield where, each, model


def invalid_options(
    error: ValidationError, model: type[Options], variants: Mapping[str, type[Options]]
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


_UNQUOTED = ("credentials", "spark", "endpoint_url", "catalog.", "lineage.", "notify.")
"""The beginnings of options whose values may hold a secret, or name an account."""


def quoted(name: str, value: object) -> str:
    """Return the option's value after a space; nothing if it may hold a secret or is an object or a list."""
    if name.startswith(_UNQUOTED) or isinstance(value, dict | list):
        return ""
    # As JSON, as in the configuration: a quoted "256" shows that it is not a number.
    text = json.dumps(value, ensure_ascii=False)
    return f" {text}" if len(text) <= 80 else f" {text[:80]}…"


def _sentence(
    kind: str,
    location: tuple[int | str, ...],
    value: object,
    model: type[Options],
    variants: Mapping[str, type[Options]],
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
    location: tuple[int | str, ...], model: type[Options], variants: Mapping[str, type[Options]]
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
        form = model.form(step)
        found = (form.expects if form is not None else None) or _by_type(field) or found
        # An object, or a list of objects.
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, Options):
                model = kind
    return found


def _by_type(field: FieldInfo) -> str | None:
    """Return what a field must be, if its type says all."""
    values = ["true", "false"] if field.annotation is bool else choices(field.annotation)
    return " or ".join(filter(None, [", ".join(values[:-1]), *values[-1:]])) or None
