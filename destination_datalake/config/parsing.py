"""Read a configuration file, normalise options, set defaults that depend on other options, and report invalid options.

A message about an invalid option names the option, the option's value and the expected value. Messages never contain
secrets.
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
from destination_datalake.config.services import inferred_mode
from destination_datalake.config.tables import default_partitioning
from destination_datalake.errors import ConfigError


def read_object(path: str, label: str) -> dict[str, Any]:
    """Return the JSON object in the file at `path`.

    Raises ConfigError if the file is unreadable, or does not contain a JSON object. The message calls the file `label`.
    It does not contain values from the file, because they may be secrets.
    """
    try:
        text = Path(path).read_bytes()
        if not text.strip():
            raise ConfigError(f"The {label} file {path} is empty.")
        content = json.loads(text, object_pairs_hook=partial(_object, label=f"{label} file {path}"))
    except OSError as error:
        raise ConfigError(f"The {label} file {path} cannot be read: {error.strerror}.") from error
    except json.JSONDecodeError as error:
        # Only `error.msg` is safe to print: `error.doc` contains the whole file.
        position = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(f"The {label} file {path} is not valid JSON: {position}: {error.msg}.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"The {label} file {path} is not valid JSON: byte {error.start + 1} is not UTF-8.") from None
    except RecursionError:
        raise nesting_error(f"{label} file {path}") from None
    except ValueError:
        raise ConfigError(
            f"The {label} file {path} contains a number with too many digits. Shorten the number."
        ) from None
    if not isinstance(content, dict):
        raise ConfigError(f"The {label} file {path} does not contain a JSON object.")
    return content


def _object(pairs: Sequence[tuple[str, Any]], label: str) -> dict[str, Any]:
    """Return a JSON object with these keys and values.

    Raises ConfigError if a key occurs twice. Python's parser would accept such a key, and keep only the last value.
    """
    members = dict(pairs)
    if len(members) < len(pairs):
        key = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise ConfigError(
            f"The {label} contains the key {json.dumps(key)} more than once in one object. Remove the duplicates."
        )
    return members


def nesting_error(label: str) -> ConfigError:
    """Return the error for JSON that is nested more deeply than Python's parser supports."""
    return ConfigError(f"The {label} is nested too deeply. Reduce the nesting of objects and arrays.")


def normalised(options: Mapping[str, Any], model: type[Options]) -> dict[str, Any]:
    """Return a copy of the options in the canonical form that `spec.json` describes.

    `model` is the model that defines the options.

    - Removes options that are null or an empty string, because forms send these values for blank optional fields.
    - Removes spaces around values. In `spark.conf`, removes only the properties that are null.
    - Corrects the letter case of enumeration values. Converts names to lower case if Glue stores them in lower case.
    - Converts mappings to lists of entries.
    - Infers `spark.mode` if it is missing.
    """
    result: dict[str, Any] = {}
    for key, raw in options.items():
        value = _stripped(raw)
        if key in ("lakeformation_database_name", "table_prefix") and isinstance(value, str):
            # Glue stores names in lower case.
            value = value.lower()
        # S3 distinguishes `a//b` from `a/b`, but Hadoop and others do not. A URI stays unchanged, so that the pattern
        # rejects it.
        elif key == "bucket_prefix" and isinstance(value, str) and "://" not in value:
            value = "/".join(folder for folder in value.split("/") if folder.strip()).strip()
        if value is not None and value != "":
            result[key] = value
    lake_formation = result.get("lake_formation")
    if isinstance(lake_formation, dict):
        for name in ("grants", "table_tags"):
            if isinstance(entries := lake_formation.get(name), list):
                lake_formation[name] = [_in_lower_case(entry) for entry in entries]
    spark, raw_spark = result.get("spark"), options.get("spark")
    if isinstance(spark, dict) and isinstance(raw_spark, dict):
        # An explicit mode takes precedence over the inferred one.
        result["spark"] = {"mode": inferred_mode(spark), **spark}
        if "conf" in spark:
            # Take the properties from the unchanged options, because spaces and empty texts can be significant in
            # Spark.
            result["spark"]["conf"] = _settings(raw_spark["conf"])
    return _canonical_object(result, model)


def _settings(conf: Any) -> Any:
    """Return Spark's properties without the properties that are null. Keep all other values, including spaces."""
    match conf:
        case dict():
            return {name: text for name, text in conf.items() if text is not None}
        case list():
            return [entry for entry in conf if not isinstance(entry, dict) or entry.get("value", "") is not None]
        case _:
            return conf


def _canonical_object(options: dict[str, Any], model: type[Options]) -> dict[str, Any]:
    fields = model.model_fields
    return {name: _canonical(value, fields[name]) if name in fields else value for name, value in options.items()}


def _canonical(value: Any, field: FieldInfo) -> Any:
    """Return a value in the canonical form for the type of the option `field`. Return invalid values unchanged."""
    for item in field.metadata:
        if isinstance(item, Entries):
            return item.as_list(value)
    match value:
        case str():
            if any(isinstance(item, AnyCase) for item in field.metadata):
                patterns = [
                    pattern for item in field.metadata if (pattern := getattr(item, "pattern", None)) is not None
                ]
                forms = (value, value.lower())
                return next((form for form in forms if all(re.match(pattern, form) for pattern in patterns)), value)
            return _choice(value, choices(field.annotation))
        case dict():
            model = matching_model(value, list(models(field.annotation)))
            return value if model is None else _canonical_object(value, model)
        case list():
            model, values = next(models(field.annotation), None), choices(field.annotation)
            return [
                _canonical_object(item, model)
                if isinstance(item, dict) and model is not None
                else _choice(item, values)
                if isinstance(item, str)
                else item
                for item in value
            ]
        case _:
            return value


def _choice(value: str, choices: Sequence[str]) -> str:
    return next((choice for choice in choices if choice.casefold() == value.casefold()), value)


def matching_model(options: dict[str, Any], candidates: list[type[Options]]) -> type[Options] | None:
    """Return the model in `candidates` whose discriminator value the object contains, or None if no model matches.

    If there is only one candidate, it always matches.
    """
    if len(candidates) == 1:
        return candidates[0]
    for model in candidates:
        for name, field in model.model_fields.items():
            constants = choices(field.annotation)
            if len(constants) == 1 and str(options.get(name)).casefold() == constants[0].casefold():
                return model
    return None


def _in_lower_case(entry: Any) -> Any:
    """Return a copy of the entry with `database` and `table` in lower case, because Glue stores names in lower case."""
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


def with_dependent_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the options with the defaults that depend on other options.

    These are the defaults of `format`, `table_type`, `numeric_types`, `partitioning`, `partition_source`,
    `lake_formation.mode` and `format.compression_codec`. Does not change options that the configuration sets.
    """
    options = {**options}
    format_ = options.setdefault("format", {"format_type": "Parquet"})
    jsonl = isinstance(format_, dict) and format_.get("format_type") == "JSONL"
    table_type = options.setdefault("table_type", "HIVE" if jsonl else "ICEBERG")
    options.setdefault(
        "numeric_types", "int/decimal" if options.get("glue_catalog_float_as_decimal") is True else "int/float"
    )
    path_layout = options.get("path_layout", "hive")
    options.setdefault("partitioning", default_partitioning(str(path_layout)))
    # The path layouts of other lakes partition by arrival time. AWS Datalake partitions by the cursor.
    options.setdefault("partition_source", "cursor" if path_layout == "hive" else "extracted_at")
    if options.get("lakeformation_governed_tables") is True:
        lake_formation = options.setdefault("lake_formation", {})
        if isinstance(lake_formation, dict):
            options["lake_formation"] = {"mode": "managed", **lake_formation}
    if isinstance(format_, dict):
        codec = "UNCOMPRESSED" if jsonl else "ZSTD" if table_type == "ICEBERG" else "SNAPPY"
        options["format"] = {"compression_codec": codec, **format_}
    return options


def contradictions(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each pair of contradictory options."""
    format_ = options.get("format")
    if isinstance(format_, dict) and format_.get("format_type") == "JSONL" and options.get("table_type") == "ICEBERG":
        yield (
            "table_type ICEBERG does not support format_type JSONL: Iceberg tables consist of Parquet files. "
            "Set table_type to HIVE, or format_type to Parquet."
        )
    numeric_types = options.get("numeric_types")
    if options.get("glue_catalog_float_as_decimal") is True and numeric_types not in (None, "int/decimal", "decimal"):
        yield (
            "glue_catalog_float_as_decimal true requires numeric_types int/decimal, but numeric_types is "
            f"{numeric_types}. Set numeric_types to int/decimal, or glue_catalog_float_as_decimal to false."
        )
    if options.get("lakeformation_database_default_tag_key") and not _has_tag_values(options):
        yield (
            "lakeformation_database_default_tag_key has no values, but an LF-Tag needs at least one. Set "
            "lakeformation_database_default_tag_values to one or more values, separated by commas, or remove the key."
        )
    naming = options.get("naming")
    style = naming.get("style", "snake_case") if isinstance(naming, dict) else "snake_case"
    if isinstance(naming, dict) and naming.get("split_numbers") is True and style in ("preserve", "aws_datalake"):
        yield (
            f"naming.split_numbers true requires naming.style snake_case, but naming.style is {style}. "
            "Set naming.style to snake_case, or naming.split_numbers to false."
        )
    batch, buffer = options.get("batch_size_mb", 256), options.get("buffer_size_mb", 4096)
    if isinstance(batch, int) and isinstance(buffer, int) and buffer < batch:
        yield (
            f"buffer_size_mb {buffer} is smaller than batch_size_mb {batch}, so a batch would never be full. "
            "Lower batch_size_mb, or raise buffer_size_mb."
        )


def _has_tag_values(options: Mapping[str, Any]) -> bool:
    """Return whether the option lakeformation_database_default_tag_values contains a value.

    Also returns True if the option is set, but is not a string, because the model rejects such an option later.
    """
    values = options.get("lakeformation_database_default_tag_values")
    return any(value.strip() for value in values.split(",")) if isinstance(values, str) else values is not None


_SIMILAR = 0.7
_MISSPELT = 0.8
"""Minimum similarities (`difflib`, 0 to 1) between an unknown and a known option. With at least `_SIMILAR`, a message
suggests the known option. With at least `_MISSPELT`, the unknown option counts as misspelt."""


class UnknownOption(NamedTuple):
    """An option that no model defines.

    `name` is its dotted name, and `suggestion` is a known option with a similar name, or None. `is_misspelt` is true if
    the name is very similar to a known option that is not set. `Config.parse` rejects misspelt options, because
    ignoring them would silently change the outcome of syncs.
    """

    name: str
    suggestion: str | None
    is_misspelt: bool

    def __str__(self) -> str:
        ignored = "" if self.is_misspelt else " is ignored"
        return f"Unknown option {self.name}{ignored}.{f' Did you mean {self.suggestion}?' if self.suggestion else ''}"


def unknown_options(options: Mapping[str, Any], model: type[Options], path: str = "") -> Iterator[UnknownOption]:
    """Yield the options that `model` does not define, including options in nested objects.

    `options` must be in the canonical form that `normalised` returns. `path` is the prefix of the dotted names.
    """
    fields = model.model_fields
    for name, value in options.items():
        if name in fields:
            for nested_path, nested, nested_model in _objects(value, fields[name], f"{path}{name}"):
                yield from unknown_options(nested, nested_model, f"{nested_path}.")
        else:
            yield _unknown(path, name, sorted(fields), options)


def _unknown(path: str, name: str, known: Sequence[str], options: Mapping[str, Any]) -> UnknownOption:
    ratio, suggestion = max((SequenceMatcher(None, name.lower(), option).ratio(), option) for option in known)
    if ratio < _SIMILAR or suggestion in options:
        return UnknownOption(f"{path}{name}", None, is_misspelt=False)
    return UnknownOption(f"{path}{name}", f"{path}{suggestion}", is_misspelt=ratio >= _MISSPELT)


def _objects(value: Any, field: FieldInfo, path: str) -> Iterator[tuple[str, dict[str, Any], type[Options]]]:
    """Yield each object in the value of an option: its dotted path, the object itself, and its model.

    `path` is the dotted path of the option.
    """
    entries = [item.model for item in field.metadata if isinstance(item, Entries)]
    candidates = entries or list(models(field.annotation))
    items = enumerate(value) if isinstance(value, list) else ()
    values = {path: value} if isinstance(value, dict) else {f"{path}.{number}": item for number, item in items}
    for value_path, item in values.items():
        if isinstance(item, dict) and (model := matching_model(item, candidates)) is not None:
            yield value_path, item, model


def invalid_options(
    error: ValidationError, model: type[Options], variants: Mapping[str, type[Options]]
) -> Iterator[str]:
    """Yield a user-facing message for each problem in a validation error of `model`.

    `variants` maps each discriminator value, such as `IAM Role`, to the model that it selects in a union.
    """
    for problem in error.errors():
        yield _message(problem["type"], problem["loc"], problem.get("input"), model, variants)


_S3_DATA_LAKE_OPTIONS: Mapping[str, str] = {
    "access_key_id": "credentials.aws_access_key_id, with credentials_title IAM User",
    "secret_access_key": "credentials.aws_secret_access_key",
    "s3_bucket_name": "bucket_name",
    "s3_bucket_region": "region",
    "s3_endpoint": "endpoint_url",
    "warehouse_location": "bucket_name and bucket_prefix",
    "main_branch_name": "no option, because syncs write to the branch main",
    "flush_batch_size_mb": "batch_size_mb",
    "normalize_column_names": "no option, because existing columns keep their names",
    "catalog_type.glue_id": "glue_catalog_id, if another account owns the catalog",
    "catalog_type.role_arn": "credentials.role_arn, with credentials_title IAM Role",
    "catalog_type.database_name": "lakeformation_database_name",
    "catalog_type": "catalog.type, glue by default",
}
"""Maps the options of Airbyte's S3 Data Lake destination to the equivalent options of this connector."""


def s3_data_lake_hint(options: Mapping[str, Any]) -> str | None:
    """Return a message that lists this connector's equivalents of the options of Airbyte's S3 Data Lake destination.

    Returns None if no option is specific to that destination. The message contains the catalog type, but no other
    values of options.
    """
    if not {"warehouse_location", "catalog_type", "s3_bucket_name"} & options.keys():
        return None
    catalog = options.get("catalog_type")
    names = {*options, *(f"catalog_type.{key}" for key in catalog)} if isinstance(catalog, Mapping) else {*options}
    equivalents = "; ".join(
        f"{key} corresponds to {option}" for key, option in _S3_DATA_LAKE_OPTIONS.items() if key in names
    )
    catalog_type = catalog.get("catalog_type") if isinstance(catalog, Mapping) else None
    continuation = (
        f"This connector cannot continue tables in a catalog of type {catalog_type}."
        if catalog_type in ("NESSIE", "REST", "POLARIS")
        else "To continue the tables of that destination, set naming.style to preserve."
    )
    return (
        f"The configuration contains options of Airbyte's S3 Data Lake destination: {equivalents}. {continuation} "
        "See docs/operating/migrating.md for a complete configuration."
    )


_UNQUOTED = frozenset({"credentials", "spark", "endpoint_url", "catalog", "lineage", "notify"})
"""Options whose values messages never contain, including nested values, because a value may be a secret or an account
ID."""


def quoted(name: str, value: object) -> str:
    """Return a space and the option's value as JSON, for use in a message. Shorten the JSON to 80 characters.

    If the value may contain a secret, or is an object or a list, returns an empty string.
    """
    if name.partition(".")[0] in _UNQUOTED or isinstance(value, dict | list):
        return ""
    # JSON shows the type of the value: the quotation marks in "256" show that the value is a string.
    text = json.dumps(value, ensure_ascii=False)
    return f" {text}" if len(text) <= 80 else f" {text[:80]}…"


def _message(
    kind: str,
    location: tuple[int | str, ...],
    value: object,
    model: type[Options],
    variants: Mapping[str, type[Options]],
) -> str:
    # For a value inside a union, pydantic's location also contains the discriminator value. Omit this value.
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
    """Return a description of the values that the option at `location` accepts, or None if there is no description.

    If the option has no description, returns the description of the closest enclosing option that has one.
    """
    expected: str | None = None
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
        expected = (form.expects if form is not None else None) or _choices_in_words(field) or expected
        # The option is an object or a list of objects.
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, Options):
                model = kind
    return expected


def _choices_in_words(field: FieldInfo) -> str | None:
    """Return the values of an enumeration or a boolean as a phrase, such as "a, b or c", or None for other types."""
    values = ["true", "false"] if field.annotation is bool else choices(field.annotation)
    return " or ".join(filter(None, [", ".join(values[:-1]), *values[-1:]])) or None
