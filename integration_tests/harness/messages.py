"""Build Airbyte messages and configured catalogs as the platform writes them: one JSON object per line, no newline."""

import json
from collections.abc import Mapping, Sequence
from typing import Literal

Json = Mapping[str, object]

EMITTED_AT = 1_700_000_000_000
"""The default `emitted_at` of records, in milliseconds since 1970: 2023-11-14T22:13:20Z."""


def record(stream: str, data: Json, *, namespace: str | None = None, emitted_at: float = EMITTED_AT) -> bytes:
    """Return a RECORD message. `emitted_at` is in milliseconds since 1970. A namespace of None is omitted."""
    body: dict[str, object] = {"stream": stream, "data": data, "emitted_at": emitted_at}
    return _line("RECORD", "record", _with_namespace(body, namespace))


def state(stream: str, cursor: object, *, namespace: str | None = None, **extra: object) -> bytes:
    """Return a STATE message for one stream with the state `{"cursor": cursor}`.

    `extra` adds members beside `type`, such as `id`.
    """
    descriptor = _with_namespace({"name": stream}, namespace)
    body = {"type": "STREAM", "stream": {"stream_descriptor": descriptor, "stream_state": {"cursor": cursor}}}
    return _line("STATE", "state", {**body, **extra})


def global_state(cursor: object, streams: Sequence[tuple[str | None, str]] = (), **extra: object) -> bytes:
    """Return a GLOBAL STATE message with a stream state for each (namespace, name) in `streams`."""
    stream_states = [
        {"stream_descriptor": _with_namespace({"name": name}, namespace), "stream_state": {"cursor": cursor}}
        for namespace, name in streams
    ]
    shared = {"shared_state": {"cursor": cursor}, "stream_states": stream_states}
    return _line("STATE", "state", {"type": "GLOBAL", "global": shared, **extra})


def status(
    stream: str, status: Literal["STARTED", "RUNNING", "COMPLETE", "INCOMPLETE"], *, namespace: str | None = None
) -> bytes:
    """Return a TRACE message with the status of a stream."""
    body = {
        "type": "STREAM_STATUS",
        "emitted_at": EMITTED_AT,
        "stream_status": {"stream_descriptor": _with_namespace({"name": stream}, namespace), "status": status},
    }
    return _line("TRACE", "trace", body)


def configured_stream(
    name: str,
    json_schema: Json,
    *,
    namespace: str | None = None,
    mode: Literal["append", "overwrite", "append_dedup"] = "append",
    generation: int | None = 0,
    minimum: int | None = 0,
    sync_id: int | None = 1,
    primary_key: Sequence[str] = (),
    cursor: str | None = None,
) -> dict[str, object]:
    """Return a stream of a configured catalog.

    An ID of None is omitted, as on platforms without refreshes. For a truncate refresh, which the platform uses to
    request an overwrite, set `mode` to "append", and `generation` and `minimum` to the same number above 0.
    `primary_key` and `cursor` are names of fields.
    """
    stream: dict[str, object] = {
        "name": name,
        "json_schema": json_schema,
        "supported_sync_modes": ["full_refresh", "incremental"],
    }
    ids = {"generation_id": generation, "minimum_generation_id": minimum, "sync_id": sync_id}
    return {
        "stream": _with_namespace(stream, namespace),
        "sync_mode": "incremental" if mode != "overwrite" and not minimum else "full_refresh",
        "destination_sync_mode": mode,
        "cursor_field": [] if cursor is None else [cursor],
        "primary_key": [[name] for name in primary_key],
        **{key: value for key, value in ids.items() if value is not None},
    }


def configured_catalog(*streams: Json) -> dict[str, object]:
    """Return a configured catalog with these streams."""
    return {"streams": list(streams)}


def _with_namespace(body: dict[str, object], namespace: str | None) -> dict[str, object]:
    return body if namespace is None else {**body, "namespace": namespace}


def _line(kind: str, key: str, body: Json) -> bytes:
    return json.dumps({"type": kind, key: body}, ensure_ascii=False, separators=(",", ":")).encode()
