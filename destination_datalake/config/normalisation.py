"""Options as users write them: normalised, completed with defaults that depend on other options, and checked.

All of it works on the JSON object, before the pydantic models see it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic.fields import FieldInfo

from destination_datalake.config.base import AnyCase, Entries, Options, choices, models
from destination_datalake.config.groups.layout import default_partitioning
from destination_datalake.config.groups.spark import place_of


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
    match value:
        case str():
            if any(isinstance(item, AnyCase) for item in field.metadata):
                patterns = [each for item in field.metadata if (each := getattr(item, "pattern", None)) is not None]
                forms = (value, value.lower())
                return next((form for form in forms if all(re.match(each, form) for each in patterns)), value)
            return _choice(value, choices(field.annotation))
        case dict():
            for item in field.metadata:
                if isinstance(item, Entries):
                    return [{"key": key, item.value: inner} for key, inner in value.items()]
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
        "numeric_types", "decimal" if options.get("glue_catalog_float_as_decimal") is True else "int/float"
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
    if given.get("glue_catalog_float_as_decimal") is True and numeric_types not in (None, "decimal"):
        yield (
            f"glue_catalog_float_as_decimal true asks for decimal columns, numeric_types {numeric_types} for others. "
            "Set numeric_types to decimal, or glue_catalog_float_as_decimal to false."
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
