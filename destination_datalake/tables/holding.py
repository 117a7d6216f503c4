"""Whose records a table holds: what this connector writes into a table's parameters, and reads there again.

For an Iceberg table they are properties, which PyIceberg repeats in the catalog's entry.
"""

from __future__ import annotations

from collections.abc import Mapping

from destination_datalake.protocol.catalog import StreamId

_NAMESPACE = "airbyte.stream-namespace"
_NAME = "airbyte.stream-name"


def holding(stream: StreamId) -> dict[str, str]:
    """The parameters of a table that is made for the stream."""
    namespace = {_NAMESPACE: stream.namespace} if stream.namespace else {}
    return {**namespace, _NAME: stream.name}


def held_stream(parameters: Mapping[str, str]) -> StreamId | None:
    """The stream that a table with these parameters was made for, or None if it does not say."""
    name = parameters.get(_NAME)
    return None if name is None else StreamId(parameters.get(_NAMESPACE) or None, name)
