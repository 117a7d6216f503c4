"""Partition specs as manifests are written by them: with the types of their fields."""

from __future__ import annotations

from pydantic import PrivateAttr
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, NestedField, StructType, UnknownType


class TypedSpec(PartitionSpec):
    """A partition spec whose partition type was found out before."""

    _type: StructType = PrivateAttr()

    @classmethod
    def of(cls, spec: PartitionSpec, type_: StructType) -> TypedSpec:
        """Return the spec with this partition type."""
        typed = cls.model_validate({"spec-id": spec.spec_id, "fields": spec.fields})
        typed._type = type_
        return typed

    def partition_type(self, schema: Schema) -> StructType:  # noqa: ARG002
        """Return the type, whatever the schema."""
        return self._type


def partition_type(spec: PartitionSpec, metadata: TableMetadata) -> StructType:
    """Return the type of partitions in manifests: all fields are optional, as Iceberg's own library has them.

    The source column of a former spec may have been dropped: then its type is taken from a former schema.
    """
    return StructType(
        *(
            NestedField(field.field_id, field.name, field.transform.result_type(type_), required=False)
            if (type_ := _source_type(field.source_id, metadata)) is not None
            else NestedField(field.field_id, field.name, UnknownType(), required=False)
            for field in spec.fields
        )
    )


def _source_type(source_id: int, metadata: TableMetadata) -> IcebergType | None:
    for schema in (metadata.schema(), *reversed(metadata.schemas)):
        try:
            return schema.find_type(source_id)
        except ValueError:
            continue
    return None
