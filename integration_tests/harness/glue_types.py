"""Convert types of the Glue Data Catalog to types of DuckDB."""

from collections.abc import Mapping, Sequence


def duckdb_type(glue_type: str) -> str:
    """Return the DuckDB type for a Glue (Hive) type: `array<struct<a:int>>` becomes `STRUCT("a" INTEGER)[]`."""
    outer, _, inner = glue_type.strip().partition("<")
    if not inner:
        return _PRIMITIVES.get(outer, outer)
    parts = split(inner.removesuffix(">"))
    match outer:
        case "array":
            return f"{duckdb_type(parts[0])}[]"
        case "map":
            return f"MAP({duckdb_type(parts[0])}, {duckdb_type(parts[1])})"
        case "struct":
            fields = (part.partition(":") for part in parts)
            return f"STRUCT({', '.join(f'{quoted(name)} {duckdb_type(kind)}' for name, _, kind in fields)})"
        case _:
            raise ValueError(f"Glue has no type {glue_type!r}")


_PRIMITIVES: Mapping[str, str] = {"string": "VARCHAR", "binary": "BLOB", "int": "INTEGER"}
"""Maps the Glue types whose names differ from DuckDB's to DuckDB's names."""


def split(types: str) -> Sequence[str]:
    """Split a text at the commas outside brackets: `a:decimal(1,2),b:array<c>` has two parts."""
    parts, depth = [""], 0
    for character in types:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def quoted(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
