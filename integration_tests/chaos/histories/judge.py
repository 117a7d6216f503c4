"""Whether rows have what was sent, whatever the columns are called; shares no code with the connector.

A value that no other record has tells which field a column holds. No column, and no member of one, may hold two.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from integration_tests.chaos.attempts.versions import CURSOR, DELETED_AT, KEY
from integration_tests.chaos.histories.typed import FIXED, Path
from integration_tests.chaos.verdicts.reader import Broken

META = "_airbyte_meta"
PLAIN = frozenset((*FIXED, *KEY, CURSOR, DELETED_AT))
"""Fields that have a column of their own name."""

Claims = dict[Path, Path]
"""Which field each column holds, or each member of one: by its path in the table, the path in the records."""


class Columns:
    """What is known of the columns of one table."""

    def __init__(self) -> None:
        self._owners: Claims = {}

    def judge(self, row: Mapping[str, Any], sent: Mapping[str, object], doubtful: frozenset[str]) -> frozenset[str]:
        """Return the fields whose values are not as they were sent, of which the row says so.

        Raises Broken for a value that is missing, for one that was not sent, and for a column of two fields.
        """
        changes = [str(change["field"]) for change in (row[META] or {}).get("changes") or ()]
        changed = {name for name in sent if any(change == name or change.startswith(f"{name}.") for change in changes)}
        if changed - doubtful:
            raise Broken(f"{sorted(changed - doubtful)} are told to be changed: {changes}; sent were {dict(sent)}")
        remaining = {
            name: value for name, value in row.items() if value is not None and not name.startswith("_airbyte")
        }
        for name in PLAIN & sent.keys():
            held = remaining.pop(name, None)
            if held is not sent[name] and not is_same(sent[name], held):
                raise Broken(f"{name} is {sent[name]!r}, and {row.get(name)!r} in its column")
        wanted = {name: value for name, value in sent.items() if value is not None and name not in PLAIN}
        places = [
            place
            for name, value in wanted.items()
            for place in self._places((name,), value, remaining, lenient=name in changed)
        ]
        assigned = _assigned(places)
        if assigned is None:
            lost = [place for place in places if not place.candidates and not place.optional] or places
            missing = {".".join(place.field): place.value for place in lost}
            owners = {column: self._owners.get((column,)) for column in remaining}
            raise Broken(f"{missing} are in no column, changes {changes}, of {remaining}; fields are {owners}")
        for claims in assigned.values():
            self._owners |= claims
        # What is left of values that were changed: truncated ones, and parts.
        extra = {
            column: remaining[column]
            for column in remaining.keys() - assigned.keys()
            if not self._is_of(column, changed)
        }
        if extra:
            raise Broken(f"these values were not sent: {extra}; sent were {dict(sent)}, changed {changed}")
        return frozenset(changed)

    def _is_of(self, column: str, fields: Collection[str]) -> bool:
        """Whether a column may be of one of these fields."""
        owner = self._owners.get((column,))
        return owner[0] in fields if owner else bool(fields)

    def _places(self, field: Path, value: object, remaining: Mapping[str, Any], *, lenient: bool) -> Iterator["_Place"]:
        """Yield where a field may be found: in columns or, if it is an object and in none, those of its members.

        An object without values needs no column: if it is flattened, it has none. A column that holds another such
        object is then not its own.
        """
        place = self._place(field, value, remaining, lenient=lenient)
        if place.candidates or not isinstance(value, dict):
            yield place
            return
        for name, part in value.items():
            if part is not None:
                yield from self._places((*field, name), part, remaining, lenient=lenient)

    def _place(self, field: Path, value: object, remaining: Mapping[str, Any], *, lenient: bool) -> "_Place":
        """Return which columns may hold a field."""
        candidates = []
        for column, stored in remaining.items():
            claims: Claims = {}
            if _holds(value, stored, (column,), field, claims, lenient=lenient) and all(
                self._owners.get(place, owner) == owner for place, owner in {**claims, (column,): field}.items()
            ):
                candidates.append((column, claims))
        # Those that are known to be the field's first.
        candidates.sort(key=lambda candidate: (candidate[0],) not in self._owners)
        return _Place(field, value, candidates, lenient or not _has_values(value))


def _has_values(value: object) -> bool:
    """Whether anything but an object, or a member of one at any depth, is not null."""
    if isinstance(value, dict):
        return any(map(_has_values, value.values()))
    return value is not None


@dataclass(frozen=True)
class _Place:
    """Where a value may be found: in columns, or in members, each with what it shows of fields."""

    field: Path
    value: object
    candidates: Sequence[tuple[str, Claims]]
    optional: bool


def _assigned(places: Sequence[_Place], taken: frozenset[str] = frozenset()) -> dict[str, Claims] | None:
    """Return a column for each value, with what it shows; None if they cannot all have one."""
    if not places:
        return {}
    # The one with the fewest candidates has the least choice.
    first, *remaining = sorted(places, key=lambda place: len(place.candidates))
    for column, claims in first.candidates:
        if column not in taken and (assigned := _assigned(remaining, taken | {column})) is not None:
            return {column: claims, **assigned}
    return _assigned(remaining, taken) if first.optional else None


def _holds(value: object, stored: Any, place: Path, field: Path, claims: Claims, *, lenient: bool) -> bool:
    """Whether a value that was found is the one that was sent; collects which fields are where."""
    if value is None or stored is None:
        return stored is None and (value is None or lenient)
    if isinstance(stored, str) and not isinstance(value, str):
        held = _same_json(value, stored)
    elif isinstance(value, dict):
        held = isinstance(stored, dict) and _holds_members(value, stored, place, field, claims, lenient=lenient)
    elif isinstance(value, list):
        held = (
            isinstance(stored, list)
            and len(stored) == len(value)
            and all(
                _holds(element, stored_element, (*place, "[]"), (*field, "[]"), claims, lenient=lenient)
                for element, stored_element in zip(value, stored, strict=True)
            )
        )
    else:
        held = is_same(value, stored)
    if held and tells(value):
        claims[place] = field
    return held


def _holds_members(
    value: Mapping[str, object], stored: Mapping[str, Any], place: Path, field: Path, claims: Claims, *, lenient: bool
) -> bool:
    members = {name: part for name, part in stored.items() if part is not None}
    places = []
    for name, part in value.items():
        if part is not None:
            candidates = []
            for member, held in members.items():
                own: Claims = {}
                if _holds(part, held, (*place, member), (*field, name), own, lenient=lenient) and all(
                    claims.get(where, owner) == owner for where, owner in own.items()
                ):
                    candidates.append((member, own))
            places.append(_Place((*field, name), part, candidates, lenient))
    assigned = _assigned(places)
    if assigned is None or (not lenient and len(assigned) < len(members)):
        return False
    for member_claims in assigned.values():
        claims |= member_claims
    return True


def tells(value: object) -> bool:
    """Whether no other field has the value, but by chance: it is an ordinary one, or has one."""
    if isinstance(value, dict):
        return any(map(tells, value.values()))
    if isinstance(value, list):
        return any(map(tells, value))
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, str):
        return value.startswith(("kleinod", "12:")) or (
            len(value) > 9 and value[:2] in ("19", "20") and value[4] == "-"
        )
    return isinstance(value, int | float) and 1000 <= value < 2**17


def is_same(value: object, stored: Any) -> bool:
    """Whether a reader's value without parts is the one that was sent."""
    match value, stored:
        case bool(), _:
            return stored is value
        case int() | float(), bool():
            return False
        case int() | float(), int():
            return value == stored
        case int() | float(), float():
            return abs(value) < 10**309 and float(value) == stored
        case int() | float(), Decimal():
            return _exactly(value) == stored
        case str(), datetime():
            moment = stored.astimezone(UTC).replace(tzinfo=None) if stored.tzinfo else stored
            return moment in _moments(value)
        case str(), date():
            return str(stored) == value
        case str(), str():
            return stored == value or _same_json(value, stored) or bool(_moments(value) & _moments(stored))
    return False


def _exactly(value: object) -> object:
    return Decimal(repr(value)) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _same_json(value: object, text: str) -> bool:
    try:
        return bool(_plain(json.loads(text, parse_float=Decimal)) == _plain(value))
    except ValueError:
        return False


def _plain(value: object) -> object:
    """With numbers that compare as they are written, and truths that are no numbers."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return f"truth {value}" if isinstance(value, bool) else _exactly(value)


def _moments(text: str) -> set[datetime]:
    if len(text) < 10 or text[4:5] != "-":
        return set()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return set()
    try:
        return {moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment}
    except OverflowError:
        return set()
