"""Templates of paths: the folder of a table, and below it the folders of its partitions; the layouts of other lakes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from destination_datalake.partitioning.spec import Part

NAMES: Mapping[str, str] = {
    "database": "the table's database: the stream's namespace, or `lakeformation_database_name`",
    "namespace": "the same",
    "table": "the table",
    "stream": "the table; only without `table_prefix`",
}
"""The variables of a table's folder, and their meaning. Together they never are the same for two tables."""

TIMES: Mapping[str, str] = {
    "year": "the year, 4 digits",
    "month": "the month, 01 to 12",
    "day": "the day of the month, 01 to 31",
    "hour": "the hour, 00 to 23",
    "date": "year, month and day: 2019-10-12",
}
"""The variables of a partition's folder, and their meaning; others are names of the stream's `partition_by`."""


class InvalidTemplate(ValueError):
    """A template that is refused; the text completes "path_layout …" and says what to do."""


@dataclass(frozen=True, slots=True)
class PathTemplate:
    """A path below bucket_prefix. `{variable}` stands for a name or a value.

    `root` is the folder of a table, and `partition` that of a partition in it; empty if tables have none.
    """

    root: str
    partition: str

    def __str__(self) -> str:
        return f"{self.root}/{self.partition}".removesuffix("/")

    @classmethod
    def parse(cls, text: str) -> PathTemplate:
        """Return a template as the option `path_layout` has it. Raises InvalidTemplate."""
        folders = text.strip("/").split("/")
        of_table = max((n for n, each in enumerate(folders, 1) if NAMES.keys() & set(variables(each))), default=0)
        template = cls("/".join(folders[:of_table]), "/".join(folders[of_table:]))
        for folder in folders:
            _check_folder(folder)
        _check_root(template.root)
        _check_partition(template.partition)
        return template

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of the partition, in order, each once."""
        return tuple(dict.fromkeys(variables(self.partition)))

    def key_name(self, variable: str) -> str:
        """Return the name of the partition key that a variable becomes in the catalog.

        If a folder is `name={variable}`, engines that read paths call it `name`, and so does the catalog.
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
    """Return the names of the variables in a part of a template, in order."""
    return tuple(VARIABLE.findall(text))


def is_key_folder(folder: str) -> bool:
    """Whether a folder is `name={variable}`, which engines read as a partition key with a value."""
    return _KEY.fullmatch(folder) is not None


def _check_folder(folder: str) -> None:
    literal = VARIABLE.sub("", folder)
    if not folder:
        raise InvalidTemplate("has an empty folder: write one slash between folders")
    if not _LITERAL.fullmatch(literal):
        raise InvalidTemplate(
            f"has the folder {folder}: besides variables in braces, a folder has letters, digits and = _ . - alone"
        )
    if folder[0] in "_.":
        raise InvalidTemplate(
            f"has the folder {folder}: engines do not look into folders that begin with _ or . Choose another name"
        )


def _check_root(root: str) -> None:
    folders = root.split("/")
    names = variables(root)
    if not {"table", "stream"} & set(names) or not {"database", "namespace"} & set(names):
        raise InvalidTemplate(
            "must have {database} or {namespace}, and {table} or {stream}, so that each table has a folder of its own: "
            "{database}/{table}/{year}/{month}/{day}"
        )
    if others := [name for name in names if name not in NAMES]:
        raise InvalidTemplate(
            f"has {{{others[0]}}} in or before a folder of {{{names[-1]}}}: a table would be spread over many folders. "
            "Put the folders of dates and partition keys behind those of names"
        )
    if any(len(variables(folder)) > 1 for folder in folders):
        raise InvalidTemplate(
            "has two names in one folder, which could be the same text for two tables. Write {database}/{table}"
        )
    # Tables of other layouts are two folders deep. No table may lie inside another one.
    literal = folders[0].lower()
    for preset in PRESETS.values():
        if literal == preset.root.split("/")[0] in RESERVED_FOLDERS and root != preset.root:
            raise InvalidTemplate(f"must have tables in {preset.root} if its first folder is {folders[0]}")
    if variables(folders[0]) and len(folders) > 2 and "=" not in f"{folders[0]}{folders[1]}":
        raise InvalidTemplate(
            f"has tables in {root}, which would lie inside tables in {{database}}/{{table}}. Begin with a folder of "
            f"its own: lake/{root}"
        )


def _check_partition(partition: str) -> None:
    folders = partition.split("/") if partition else []
    for folder in folders:
        for variable in variables(folder):
            if variable in NAMES:
                raise InvalidTemplate(
                    f"has {{{variable}}} in or behind a folder of a date or a key. Put it before them"
                )
            if variable not in TIMES and not is_key_folder(folder):
                raise InvalidTemplate(
                    f"has the folder {folder}: besides {', '.join(TIMES)}, a variable is the name of a field of the "
                    f"stream's partition_by, and fills a folder of the form name={{name}}"
                )
    keys = [folder.partition("=")[0].lower() for folder in folders if is_key_folder(folder)]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise InvalidTemplate(f"has several folders {twice[0]}=…, of which engines read one. Give each another name")
    if folders and not variables(folders[-1]):
        raise InvalidTemplate(f"ends in the folder {folders[-1]}: the last folder has a variable")


@dataclass(frozen=True, slots=True)
class Preset:
    """The layout of another lake: where tables lie, and the folder of a partition for each value of `partitioning`."""

    root: str
    default: str
    partitions: Mapping[str, str]

    def template(self, partitioning: str) -> PathTemplate:
        """Return the template for a value of the option `partitioning`. Raises KeyError if there is none."""
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
"""The values of `path_layout` besides `hive` and templates."""

HIVE_ROOT = "{database}/{table}"

RESERVED_FOLDERS = frozenset(
    preset.root.split("/")[0] for preset in PRESETS.values() if not variables(preset.root.split("/")[0])
)
"""First folders of other lakes, which no database's folder may be: tables would lie inside tables."""


def table_root(path_layout: str) -> str:
    """Return the template of a table's folder under bucket_prefix. Raises InvalidTemplate."""
    if path_layout == "hive":
        return HIVE_ROOT
    if path_layout in PRESETS:
        return PRESETS[path_layout].root
    return PathTemplate.parse(path_layout).root


def path_template(path_layout: str, partitioning: str) -> PathTemplate | None:
    """Return the template that two options mean; None for `hive`, whose folders are those of the partition keys.

    Raises InvalidTemplate, also if the layout has no folders for this value of `partitioning`.
    """
    if path_layout == "hive":
        return None
    if (preset := PRESETS.get(path_layout)) is not None:
        if partitioning not in preset.partitions:
            *others, last = (each for each in preset.partitions if each not in _NO_PARTITIONS)
            raise InvalidTemplate(
                f"{path_layout} has no folders for partitioning {partitioning}. Set partitioning to "
                f"{', '.join(others)} or {last}, or path_layout to hive"
            )
        return preset.template(partitioning)
    return PathTemplate.parse(path_layout)


def time_parts(template: PathTemplate) -> tuple[Part, ...]:
    """Return the parts of a date among the variables of a template, in order."""
    return tuple(cast(Part, each) for each in template.variables if each in TIMES)


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return a template with the values of its variables."""
    return VARIABLE.sub(lambda found: values[found[1]], template)
