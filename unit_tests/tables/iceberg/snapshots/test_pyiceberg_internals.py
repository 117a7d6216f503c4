"""The contract with PyIceberg: what the connector uses of it that is not public, and where."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import pyiceberg
import pyiceberg.manifest
import pyiceberg.table.update
import pyiceberg.table.update.snapshot
import pytest
from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.resolver import ReadSchemaResolver
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.manifest import DATA_FILE_TYPE, DEFAULT_READ_VERSION, DataFile, ManifestEntry, ManifestWriterV2
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.typedef import Record

from unit_tests.repository.files import ROOT

INTERNALS = "tables/iceberg/pyiceberg_internals.py"

REMEDY = (
    f"PyIceberg {pyiceberg.__version__} is not what destination_datalake/{INTERNALS} was written for. Read what the "
    "new release does there and compare it with the old one's source (pip download pyiceberg==OLD). Change that "
    "module alone, or compare_and_set.py for the catalog's methods; then run unit_tests/tables/iceberg, make "
    "test-engines and make chaos; then write what holds now into this test."
)

CALLED: list[tuple[Any, str, str]] = [
    (_SnapshotProducer, "__init__", "self operation transaction io commit_uuid snapshot_properties branch"),
    (_SnapshotProducer, "_commit", "self"),
    (_SnapshotProducer, "new_manifest_writer", "self spec"),
    (_SnapshotProducer, "new_manifest_output", "self"),
    (Transaction, "_apply", "self updates requirements"),
    (pyiceberg.manifest, "_inherit_from_manifest", "entry manifest"),
    (pyiceberg.manifest, "data_file_with_partition", "partition_type format_version"),
    (pyiceberg.manifest, "manifest_entry_schema_with_data_file", "format_version data_file"),
    (pyiceberg.table.update, "_apply_table_update", "update base_metadata context"),
    (pyiceberg.table.update, "_update_table_metadata_log", "base_metadata metadata_location last_updated_ms"),
    (Record, "_bind", "struct arguments"),
    (AvroFile, "_read_header", "self"),
]

REPLACED: list[tuple[Any, str, str]] = [
    (_SnapshotProducer, "_manifests", "self"),
    (_SnapshotProducer, "_summary", "self snapshot_properties"),
    (_SnapshotProducer, "_validate_concurrency", "self"),
    (_SnapshotProducer, "_existing_manifests", "self"),
    (_SnapshotProducer, "_deleted_entries", "self"),
    (_SnapshotProducer, "spec", "self spec_id"),
    (ManifestWriterV2, "_with_partition", "self format_version"),
    (ManifestWriterV2, "content", "self"),
    (ManifestWriterV2, "prepare_entry", "self entry"),
    (ReadSchemaResolver, "visit_double", "self double_type partner"),
    (AvroFile, "__enter__", "self"),
    (AvroFile, "__next__", "self"),
    (GlueCatalog, "_load_file_io", "self properties location"),
    (GlueCatalog, "_is_s3tables_database", "self database_name"),
    (GlueCatalog, "_write_metadata", "metadata io metadata_path"),
    (GlueCatalog, "_get_glue_table", "self database_name table_name"),
    (GlueCatalog, "_convert_glue_to_iceberg", "self glue_table"),
    (GlueCatalog, "_update_and_stage_table", "self current_table table_identifier requirements updates"),
    (GlueCatalog, "_update_glue_table", "self database_name table_name table_input version_id"),
    (GlueCatalog, "_parse_metadata_version", "metadata_location"),
    (RestCatalog, "_config_headers", "self session"),
    (RestCatalog, "_create_session", "self"),
    (RestCatalog, "_response_to_table", "self identifier_tuple table_response"),
    (Table, "location_provider", "self"),
]

IMPORTS_BY_NAME = {
    "catalog/__init__.py": 1,  # `py-catalog-impl`: of `load_catalog`, which is not called.
    "catalog/rest/auth.py": 1,  # `auth.impl`: untrusted.SERVER_KEYS.
    "io/__init__.py": 1,  # `py-io-impl`: S3FileIO is given to every table.
    "io/pyarrow.py": 1,  # `s3.retry-strategy-impl`: as above.
    "table/locations.py": 1,  # `write.py-location-provider.impl`: untrusted.TABLE_PROPERTIES.
    "transforms.py": 1,  # A constant name.
}


@pytest.mark.parametrize(("owner", "name", "parameters"), CALLED + REPLACED)
def test_what_is_called_and_what_is_replaced_takes_the_same_arguments(owner: Any, name: str, parameters: str) -> None:
    member = getattr(owner, name, None)

    assert member is not None, REMEDY
    assert [*inspect.signature(member).parameters] == parameters.split(), REMEDY


def test_pyiceberg_imports_by_name_where_no_server_and_no_table_names_anything() -> None:
    package = Path(pyiceberg.__file__).parent
    texts = {str(path.relative_to(package)): path.read_text() for path in package.rglob("*.py")}
    by_name = re.compile(r"\bimport_module\(|\b__import__\(|\bpickle\.")

    assert {name: len(calls) for name, text in texts.items() if (calls := by_name.findall(text))} == IMPORTS_BY_NAME, (
        REMEDY
    )


def test_paths_are_those_of_the_table_that_a_catalog_returns() -> None:
    """`DataOnlyTable.location_provider` is asked, not `load_location_provider`."""
    source = inspect.getsource(pyiceberg.table.update.snapshot)

    assert source.count("location_provider = self._transaction._table.location_provider()") == 2, REMEDY
    assert "load_location_provider" not in source, REMEDY


@pytest.mark.parametrize("name", ["_manifests", "_summary"])
def test_a_commit_asks_for_what_is_replaced(name: str) -> None:
    assert f"self.{name}(" in inspect.getsource(_SnapshotProducer._commit), REMEDY


def test_the_attributes_of_a_snapshot_are_the_same() -> None:
    used = {"_transaction", "_io", "_compression", "_target_branch", "_written_manifests", "_snapshot_id"}

    assert used <= {*inspect.get_annotations(_SnapshotProducer)} | {"_transaction"}, REMEDY
    assert {"_table", "_updates", "_requirements"} <= {*inspect.get_annotations(Transaction)}, REMEDY


def test_entries_have_the_same_fields_in_the_same_order() -> None:
    """Fields are found by position. Field 143 is added to them for delete files, as it is to format version 3."""
    ids = [field.field_id for field in DATA_FILE_TYPE[2].fields]

    assert DEFAULT_READ_VERSION == 2, REMEDY
    assert ids == [134, 100, 101, 102, 103, 104, 108, 109, 110, 137, 125, 128, 131, 132, 135, 140], REMEDY
    assert 143 in [field.field_id for field in DATA_FILE_TYPE[3].fields], REMEDY
    entry = ManifestEntry.from_args(status=1, snapshot_id=2, sequence_number=3, file_sequence_number=4, data_file=5)
    assert entry._data == [1, 2, 3, 4, 5], REMEDY
    assert DataFile.from_args(file_path="x")._data[1] == "x", REMEDY


def test_another_minor_version_is_not_installed_without_looking() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [pinned] = [dependency for dependency in project["dependencies"] if dependency.startswith("pyiceberg")]
    major, minor = map(int, pyiceberg.__version__.split(".")[:2])

    assert pinned.endswith(f">={major}.{minor},<{major}.{minor + 1}"), REMEDY


@pytest.mark.slow
def test_what_is_private_is_imported_in_one_module() -> None:
    package = ROOT / "destination_datalake"
    private_imports = {
        str(path.relative_to(package)): names
        for path in package.rglob("*.py")
        if (names := _private_imports(path)) and path != package / INTERNALS
    }

    assert private_imports == {}


def _private_imports(path: Path) -> list[str]:
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    return [
        alias.name
        for statement in imports
        if (statement.module or "").startswith("pyiceberg")
        for alias in statement.names
        if alias.name.startswith("_") or (statement.module or "").startswith("pyiceberg.avro")
    ]
