"""The difference between what is desired and what there is: a law, and what is decided where the two disagree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.lake_formation.state import (
    AddLfTagValues,
    AllTables,
    Change,
    Column,
    ColumnsExcept,
    CreateLfTag,
    Database,
    DataLocation,
    Desired,
    Grant,
    LocationNotRegistered,
    OptIn,
    OtherValueAssigned,
    Present,
    RegisteredDifferently,
    Registration,
    Resource,
    Table,
    Tag,
    difference,
)

ROLE = "arn:aws:iam::123456789012:role/lake-formation"
LOCATION = "arn:aws:s3:::lake/raw"
ORDERS = Table("shop", "orders")
EMAIL = Column("shop", "orders", "email")

names = st.sampled_from(["a", "b", "c"])
resources: st.SearchStrategy[Resource] = st.sampled_from(
    [Database("shop"), AllTables("shop"), ORDERS, EMAIL, Column("shop", "orders", "id"), DataLocation(LOCATION)]
)
tags = st.dictionaries(st.tuples(resources, names), names).map(
    lambda values: frozenset(Tag(resource, key, value) for (resource, key), value in values.items())
)
"""A resource has one value for each key."""
grants = st.builds(Grant, names, resources, st.sampled_from(["ALL", "SELECT", "DESCRIBE"]), st.booleans())
opt_ins = st.builds(OptIn, names, resources)
registrations = st.builds(
    Registration, st.sampled_from([LOCATION, "arn:aws:s3:::lake", f"{LOCATION}/x"]), st.just(ROLE), st.booleans()
)
desired_states = st.builds(
    Desired,
    st.none() | st.builds(Registration, st.just(LOCATION), st.just(ROLE), st.booleans()),
    st.dictionaries(names, st.lists(names, min_size=1, unique=True).map(tuple)),
    tags,
    st.frozensets(grants),
    st.frozensets(opt_ins),
)
present_states = st.builds(
    Present,
    st.frozensets(registrations),
    st.dictionaries(names, st.frozensets(names, min_size=1)),
    tags,
    st.frozensets(grants),
    st.frozensets(opt_ins),
)


def applied(changes: Iterable[Change], present: Present) -> Present:
    """Return the state after the changes, as Lake Formation makes them: each adds, and none takes away."""
    for change in changes:
        match change:
            case Registration():
                present = replace(present, registrations=present.registrations | {change})
            case CreateLfTag(key, values) | AddLfTagValues(key, values):
                merged = {*present.tag_values.get(key, ()), *values}
                present = replace(present, tag_values={**present.tag_values, key: frozenset(merged)})
            case Tag():
                present = replace(present, tags=present.tags | {change})
            case Grant():
                present = replace(present, grants=present.grants | {change})
            case OptIn():
                present = replace(present, opt_ins=present.opt_ins | {change})
    return present


@given(desired_states, present_states)
def test_after_the_changes_nothing_is_left_to_change(desired: Desired, present: Present) -> None:
    initial = difference(desired, present)
    after = difference(desired, applied(initial.changes, present))

    assert after.changes == ()
    assert after.deviations == initial.deviations


@given(desired_states, present_states)
def test_no_change_touches_what_is_there(desired: Desired, present: Present) -> None:
    for change in difference(desired, present).changes:
        match change:
            case Registration(arn):
                assert present.covering_registration(arn) is None
            case CreateLfTag(key):
                assert key not in present.tag_values
            case Tag(resource, key):
                assert present.assigned_value(resource, key) is None
            case AddLfTagValues(key, values):
                assert present.tag_values[key].isdisjoint(values)
            case Grant():
                assert change not in present.grants
            case OptIn():
                assert change not in present.opt_ins


def test_what_others_refer_to_comes_first() -> None:
    desired = Desired(
        Registration(LOCATION, ROLE, hybrid=True),
        {"pii": ("no",)},
        frozenset({Tag(ORDERS, "pii", "no")}),
        frozenset({Grant("a", ORDERS, "SELECT")}),
        frozenset({OptIn("a", ORDERS)}),
    )

    kinds = [type(change) for change in difference(desired, Present()).changes]

    assert kinds == [Registration, CreateLfTag, Tag, Grant, OptIn]


def test_a_registered_parent_covers_the_location_whoever_its_role_is() -> None:
    desired = Desired(Registration(LOCATION, ROLE, hybrid=False))
    bucket = Registration("arn:aws:s3:::lake", "another role", hybrid=False)

    assert difference(desired, Present(frozenset({bucket}))) == difference(Desired(), Present())


def test_the_nearest_registration_counts() -> None:
    desired = Desired(Registration(LOCATION, ROLE, hybrid=False))
    near, far = Registration(LOCATION, ROLE, hybrid=True), Registration("arn:aws:s3:::lake", ROLE, hybrid=False)

    [deviation] = difference(desired, Present(frozenset({near, far}))).deviations
    assert deviation == RegisteredDifferently(near, desired.registration or near)


def test_a_location_without_a_role_is_a_deviation() -> None:
    wanted = Registration(LOCATION, None, hybrid=False)

    assert difference(Desired(wanted), Present()).deviations == (LocationNotRegistered(wanted),)
    assert difference(Desired(wanted), Present(frozenset({replace(wanted, role_arn="any")}))).deviations == ()


def test_another_value_is_a_deviation_and_another_case_is_not() -> None:
    desired = Desired(tags=frozenset({Tag(ORDERS, "PII", "High")}))

    assert difference(desired, Present(tags=frozenset({Tag(ORDERS, "pii", "high")}))) == difference(
        Desired(), Present()
    )
    low = Present(tags=frozenset({Tag(ORDERS, "pii", "low")}))
    assert difference(desired, low).deviations == (OtherValueAssigned(Tag(ORDERS, "PII", "High"), "low"),)


def test_a_permission_may_be_there_as_part_of_a_wider_one() -> None:
    wanted = Grant("a", EMAIL, "SELECT")
    wider = [
        Grant("a", EMAIL, "SELECT", grantable=True),
        Grant("a", ORDERS, "SELECT"),
        Grant("a", ORDERS, "ALL", grantable=True),
        Grant("a", ColumnsExcept("shop", "orders", frozenset({"id"})), "SELECT"),
    ]
    narrower = [
        Grant("b", EMAIL, "SELECT"),
        Grant("a", ORDERS, "DESCRIBE"),
        Grant("a", Database("shop"), "ALL"),
        Grant("a", ColumnsExcept("shop", "orders", frozenset({"id", "email"})), "SELECT"),
        Grant("a", ColumnsExcept("shop", "others", frozenset({"id"})), "SELECT"),
        Grant("b", ColumnsExcept("shop", "orders", frozenset({"id"})), "SELECT"),
    ]

    assert [grant for grant in (*wider, *narrower) if Present(grants=frozenset({grant})).is_granted(wanted)] == wider
    assert not Present(grants=frozenset({wanted})).is_granted(replace(wanted, grantable=True))
