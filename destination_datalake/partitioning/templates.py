"""Path templates for the folders of tables and partitions, and presets with the folder layouts of other data lakes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from destination_datalake.partitioning.spec import Part

NAMES: Mapping[str, str] = {
    "database": "the table's database: the stream's namespace, or `lakeformation_database_name`",
    "namespace": "a synonym for `database`",
    "table": "the name of the table, with `table_prefix`",
    "stream": "a synonym for `table`, which is not allowed with `table_prefix`",
}
"""Maps each variable for the folder of a table to its meaning, for the documentation.

A template must contain a variable for the database and a variable for the table, so that each table has its own folder.
"""

TIMES: Mapping[str, str] = {
    "year": "the year, 4 digits",
    "month": "the month, 01 to 12",
    "day": "the day of the month, 01 to 31",
    "hour": "the hour, 00 to 23",
    "date": "year, month and day: 2019-10-12",
}
"""Maps each variable for the folder of a partition to its meaning, for the documentation.

The names of the fields in a stream's `partition_by` are variables too.
"""


class InvalidTemplate(ValueError):
    """A path template is invalid. The message completes a sentence that begins with "path_layout", and has a remedy."""


@dataclass(frozen=True, slots=True)
class PathTemplate:
    """A path below `bucket_prefix` with variables for names and values, such as `{database}/{table}/year={year}`.

    `root` is the part for the folder of a table. `partition` is the rest of the path, which is the part for the folder
    of a partition, and can be empty.
    """

    root: str
    partition: str

    def __str__(self) -> str:
        return f"{self.root}/{self.partition}".removesuffix("/")

    @classmethod
    def parse(cls, text: str) -> PathTemplate:
        """Parse a path template, which the user sets in the option `path_layout`. Raises InvalidTemplate."""
        folders = text.strip("/").split("/")
        # The folder of a table ends with the last folder that contains a name.
        depth = max((n for n, folder in enumerate(folders, 1) if NAMES.keys() & set(variables(folder))), default=0)
        template = cls("/".join(folders[:depth]), "/".join(folders[depth:]))
        for folder in folders:
            _check_folder(folder)
        _check_root(template.root)
        _check_partition(template.partition)
        return template

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables in `partition`, in order and without duplicates."""
        return tuple(dict.fromkeys(variables(self.partition)))

    def key_name(self, variable: str) -> str:
        """Return the name of a variable's partition key in the catalog.

        If the template contains a folder `name={variable}`, returns `name` in lower case, because engines read this
        name from the path too. Otherwise, returns the name of the variable.
        """
        for folder in self.partition.split("/"):
            name, _, value = folder.partition("=")
            if value == f"{{{variable}}}":
                return name.lower()
        return variable


VARIABLE = re.compile(r"\{([^{}]*)\}")
_LITERAL = re.compile(r"[A-Za-z0-9=_.-]*")
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]*=\{[a-z0-9_]+\}")


def variables(text: str) -> tuple[str, ...]:
    """Return the names of the variables in a part of a template, in order, including duplicates."""
    return tuple(VARIABLE.findall(text))


def is_key_folder(folder: str) -> bool:
    """Return whether a folder has the form `name={variable}`, which engines read as a partition key with its value."""
    return _KEY.fullmatch(folder) is not None


def _check_folder(folder: str) -> None:
    literal = VARIABLE.sub("", folder)
    if not folder:
        raise InvalidTemplate("contains an empty folder. Write one slash between folders")
    if not _LITERAL.fullmatch(literal):
        raise InvalidTemplate(
            f"contains the folder {folder}, whose name has invalid characters. Use only letters, digits, the "
            "characters = _ . - and variables in braces"
        )
    if folder[0] in "_.":
        raise InvalidTemplate(
            f"contains the folder {folder}, but query engines skip folders that begin with _ or a dot. Choose a "
            "different name"
        )


def _check_root(root: str) -> None:
    folders = root.split("/")
    names = variables(root)
    if not {"table", "stream"} & set(names) or not {"database", "namespace"} & set(names):
        raise InvalidTemplate(
            "must contain {database} or {namespace}, and {table} or {stream}, because every table requires its own "
            "folder. Use for example {database}/{table}/{year}/{month}/{day}"
        )
    if misplaced := [name for name in names if name not in NAMES]:
        placed = [name for name in names if name in NAMES]
        raise InvalidTemplate(
            f"contains {{{misplaced[0]}}} in or before the folder with {{{placed[-1]}}}, so a table would have several "
            "folders. Place the folders with dates and partition keys after the folders with names"
        )
    if any(len(variables(folder)) > 1 for folder in folders):
        raise InvalidTemplate(
            "contains two names in one folder, so two tables could use the same folder. Write {database}/{table}"
        )
    # No table may be inside another table's folder. In layouts with {database}/{table}, tables are two folders deep.
    literal = folders[0].lower()
    for preset in PRESETS.values():
        if literal == preset.root.split("/")[0] in RESERVED_FOLDERS and root != preset.root:
            raise InvalidTemplate(
                f"must begin with {preset.root}, because folder {folders[0]} is reserved for this layout. Correct the "
                "path, or choose a different first folder"
            )
    if variables(folders[0]) and len(folders) > 2 and "=" not in f"{folders[0]}{folders[1]}":
        raise InvalidTemplate(
            f"places tables in {root}, inside the folders of tables in {{database}}/{{table}}. Begin the template with "
            f"a separate folder, such as lake/{root}"
        )


def _check_partition(partition: str) -> None:
    folders = partition.split("/") if partition else []
    for folder in folders:
        for variable in variables(folder):
            if variable in NAMES:
                raise InvalidTemplate(
                    f"contains {{{variable}}} in or after the folder of a date or a partition key. Place "
                    f"{{{variable}}} before these folders"
                )
            if variable not in TIMES and not is_key_folder(folder):
                raise InvalidTemplate(
                    f"contains the folder {folder}, but {{{variable}}} is not a known variable. Use one of "
                    f"{', '.join(TIMES)}. For a field in the stream's partition_by, write a folder of the "
                    f"form name={{name}}"
                )
    keys = [folder.partition("=")[0].lower() for folder in folders if is_key_folder(folder)]
    if repeated := [key for key in keys if keys.count(key) > 1]:
        raise InvalidTemplate(
            f"contains several folders {repeated[0]}=…, but query engines read only one of them. Use different names"
        )
    if folders and not variables(folders[-1]):
        raise InvalidTemplate(
            f"ends with the folder {folders[-1]}, but the last folder must contain a variable. Move or remove the "
            "folder"
        )


@dataclass(frozen=True, slots=True)
class Preset:
    """A folder layout that is compatible with another data lake.

    `root` is the template for the folder of a table. `partitions` maps each supported value of the option
    `partitioning` to the template for the folder of a partition. `default` is the default value of `partitioning`.
    """

    root: str
    default: str
    partitions: Mapping[str, str]

    def template(self, partitioning: str) -> PathTemplate:
        """Return the path template for a value of the option `partitioning`.

        Raises KeyError if the layout does not support the value.
        """
        return PathTemplate(self.root, self.partitions[partitioning])


_NO_PARTITIONS = {"NO PARTITIONING": ""}
_DIGITS = {
    "YEAR": "{year}",
    "YEAR/MONTH": "{year}/{month}",
    "YEAR/MONTH/DAY": "{year}/{month}/{day}",
    "YEAR/MONTH/DAY/HOUR": "{year}/{month}/{day}/{hour}",
    **_NO_PARTITIONS,
}
_UNITS = {
    "YEAR": "year={year}",
    "YEAR/MONTH": "year={year}/month={month}",
    "YEAR/MONTH/DAY": "year={year}/month={month}/day={day}",
    **_NO_PARTITIONS,
}

PRESETS: Mapping[str, Preset] = {
    "plain": Preset("{database}/{table}", "YEAR/MONTH/DAY/HOUR", _DIGITS),
    "rudderstack": Preset("rudder-datalake/{namespace}/{table}", "YEAR/MONTH/DAY/HOUR", _DIGITS),
    "segment": Preset(
        "segment-data/data/{namespace}/segment_type={table}",
        "DAY/HOUR",
        {
            "DATE": "day={date}",
            "DAY/HOUR": "day={date}/hr={hour}",
            **_UNITS,
            "YEAR/MONTH/DAY/HOUR": "year={year}/month={month}/day={day}/hr={hour}",
        },
    ),
    "firehose": Preset(
        "{database}/{table}",
        "YEAR/MONTH/DAY/HOUR",
        {**_UNITS, "YEAR/MONTH/DAY/HOUR": "year={year}/month={month}/day={day}/hour={hour}"},
    ),
}
"""The presets of the option `path_layout`, by name. The option also accepts `hive` and path templates."""

HIVE_ROOT = "{database}/{table}"

RESERVED_FOLDERS = frozenset(
    preset.root.split("/")[0] for preset in PRESETS.values() if not variables(preset.root.split("/")[0])
)
"""The names of the first folders in preset layouts, such as `segment-data`.

The folder of a database must not have one of these names. Otherwise a table could be inside another table's folder.
"""


def table_root(path_layout: str) -> str:
    """Return the template for the folder of a table below bucket_prefix. Raises InvalidTemplate."""
    if path_layout == "hive":
        return HIVE_ROOT
    if path_layout in PRESETS:
        return PRESETS[path_layout].root
    return PathTemplate.parse(path_layout).root


def path_template(path_layout: str, partitioning: str) -> PathTemplate | None:
    """Return the path template for the options `path_layout` and `partitioning`.

    Return None for the layout `hive`, whose folders have the form `key=value`. Raises InvalidTemplate if the template
    is invalid, or if the layout does not support the value of `partitioning`.
    """
    if path_layout == "hive":
        return None
    if (preset := PRESETS.get(path_layout)) is not None:
        if partitioning not in preset.partitions:
            *supported, last = (units for units in preset.partitions if units not in _NO_PARTITIONS)
            raise InvalidTemplate(
                f"{path_layout} does not support partitioning {partitioning}. Set partitioning to "
                f"{', '.join(supported)} or {last}, or path_layout to hive"
            )
        return preset.template(partitioning)
    return PathTemplate.parse(path_layout)


def time_parts(template: PathTemplate) -> tuple[Part, ...]:
    """Return those variables in a template's `partition` that are dates or parts of dates and times, in order."""
    return tuple(cast(Part, variable) for variable in template.variables if variable in TIMES)


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return the template with each variable replaced by its value."""
    return VARIABLE.sub(lambda match: values[match[1]], template)
