"""Random requests to our metadata engine and to Iceberg's own builders: same metadata, same refusals."""

from __future__ import annotations

import copy
import json
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, note, settings
from hypothesis import strategies as st

from inver.domain import iceberg
from inver.domain.iceberg import Change, State
from inver.errors import InverError
from tests.fixtures.iceberg_java import Oracle, running_oracle
from tests.fixtures.iceberg_updates import LOCATION, START_MS, create_body, schema, updates_for
from tests.fixtures.jvm import JvmMissing
from tests.fixtures.lines import Failed

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

Document = dict[str, Any]

# The version of a view may mean a schema that its request adds, also when somebody else was first to add
# the same one. Java refuses the request then.
KNOWN_SCHEMA = "Cannot set last added schema: no schema has been added"
GONE_TWICE = "arraySize cannot be negative"
"""What Java trips over when a request removes a snapshot that it has removed before."""

checked = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    try:
        with running_oracle(tmp_path_factory.mktemp("oracle")) as oracle:
            yield oracle
    except JvmMissing as missing:
        pytest.skip(str(missing))


# --- both sides of one step ---


class Side:
    """Our engine, with the last state that both agreed on."""

    def __init__(self, oracle: Oracle, change: Change) -> None:
        self.oracle = oracle
        self.state = change.state
        self._op = "commit-view" if change.state.is_view else "commit-table"

    @property
    def document(self) -> Document:
        return document(self.state)

    def step(self, request: dict[str, Any]) -> str:
        """Apply the request on both sides, and say what became of it."""
        note(json.dumps(request))
        base, now = self.document, _now(request)
        answer: Document | None = None
        java: Failed | None = None
        ours: InverError | None = None
        try:
            answer = self.oracle(self._op, request, self.state.head.metadata_location, base)
        except Failed as refused:
            java = refused
        change = None
        try:
            decoded = iceberg.decode_commit(json.dumps(request).encode())
            change = iceberg.commit(self.state, [decoded], now_ms=now, file_id=str(uuid.uuid4()))
        except InverError as refused:
            ours = refused
        if java is not None and ours is None:
            if self.state.is_view and java.message == KNOWN_SCHEMA:
                return "allowed by us"
            if GONE_TWICE in java.message:
                return "allowed by us"
        if java is not None or ours is not None:
            assert (java is None) == (ours is None), f"Java: {java or 'applied'}; ours: {ours or 'applied'}"
            assert java is not None
            assert ours is not None
            if java.message.startswith(("Requirement failed", "Validation failed")):
                assert ours.message == java.message
            return "refused"
        assert change is not None
        assert change.changed == (answer is not None), f"Java: {answer is not None}; ours: {change.changed}"
        if answer is None:
            return "nothing"
        mine, theirs = normal(document(change.state), now), normal(answer, answer.get("last-updated-ms"))
        if _skips_rows(request, base) and mine["next-row-id"] > theirs["next-row-id"]:
            # Java only adds the rows, and would give out ids that are taken.
            theirs["next-row-id"] = mine["next-row-id"]
        assert mine == theirs
        self.state = change.state
        return "applied"


def document(state: State) -> Document:
    found: Document = msgspec.json.decode(b"".join(iceberg.document(state)))
    return found


def normal(given: Document, now: int | None) -> Document:
    """Without the moment at which it was made."""
    made = copy.deepcopy(given)
    made.pop("last-updated-ms", None)
    if not made.get("properties"):
        made.pop("properties", None)
    for snapshot in made.get("snapshots", ()):
        # As good as none, and Java does not write it.
        if snapshot.get("sequence-number") == 0:
            del snapshot["sequence-number"]
    times = {each["snapshot-id"]: each["timestamp-ms"] for each in made.get("snapshots", ())}
    for entry in made.get("snapshot-log", ()):
        if entry["timestamp-ms"] == now != times.get(entry["snapshot-id"]):
            entry["timestamp-ms"] = "now"
    times = {each["version-id"]: each["timestamp-ms"] for each in made.get("versions", ())}
    for entry in made.get("version-log", ()):
        # A view does not say when it was changed; nothing here is older than the test.
        if entry["timestamp-ms"] != times.get(entry["version-id"], 0) and entry["timestamp-ms"] > START_MS:
            entry["timestamp-ms"] = "now"
    for kind in ("statistics", "partition-statistics"):
        # Java keeps them in a map.
        made.get(kind, []).sort(key=lambda each: each["snapshot-id"])
    return made


def _skips_rows(request: dict[str, Any], base: Document) -> bool:
    """Whether a snapshot leaves out ids of rows that the table has to give."""
    following = base.get("next-row-id", 0)
    for update in request["updates"]:
        snapshot = update.get("snapshot", {})
        if snapshot.get("first-row-id", 0) > following:
            return True
        following += snapshot.get("added-rows", 0)
    return False


def _now(request: dict[str, Any]) -> int:
    """A moment that is not a snapshot's, so that it can be told from one."""
    now, text = int(time.time() * 1000), json.dumps(request)
    while str(now) in text:
        now += 1
    return now


def new(oracle: Oracle, version: int) -> Side:
    create = iceberg.decode_create_table(create_body(version))
    change = iceberg.new_table(
        create, location=LOCATION, now_ms=int(time.time() * 1000), uuid=str(uuid.uuid4()), file_id="first"
    )
    return Side(oracle, change)


# --- requests that are not quite right ---


@st.composite
def requirements(draw: st.DrawFn, on: Document) -> list[dict[str, Any]]:
    """What clients send, with the truth or something near it."""

    def near(value: int) -> int:
        return value + draw(st.sampled_from([0, 0, 0, 0, 1]))

    ids = [each["snapshot-id"] for each in on["snapshots"]]
    kinds: dict[str, Any] = {
        "assert-table-uuid": lambda: {
            "uuid": draw(st.sampled_from([on["table-uuid"], on["table-uuid"].upper(), str(uuid.UUID(int=1))]))
        },
        "assert-ref-snapshot-id": lambda: {
            "ref": draw(st.sampled_from(["main", "audit", "release", "nowhere"])),
            "snapshot-id": draw(st.sampled_from([None, *ids])),
        },
        "assert-last-assigned-field-id": lambda: {"last-assigned-field-id": near(on["last-column-id"])},
        "assert-current-schema-id": lambda: {"current-schema-id": near(on["current-schema-id"])},
        "assert-last-assigned-partition-id": lambda: {
            "last-assigned-partition-id": near(on["last-partition-id"])
        },
        "assert-default-spec-id": lambda: {"default-spec-id": near(on["default-spec-id"])},
        "assert-default-sort-order-id": lambda: {"default-sort-order-id": near(on["default-sort-order-id"])},
    }
    chosen = draw(st.lists(st.sampled_from(sorted(kinds)), max_size=3))
    return [{"type": kind, **kinds[kind]()} for kind in chosen]


@st.composite
def mangled(draw: st.DrawFn, updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same with something dropped, doubled, moved, or pointing elsewhere."""
    made = copy.deepcopy(updates)
    place = draw(st.integers(0, len(made) - 1))
    how = draw(st.sampled_from(["drop", "double", "swap", "number", "number"]))
    if how == "drop":
        del made[place]
    elif how == "double":
        made.insert(draw(st.integers(0, len(made))), copy.deepcopy(made[place]))
    elif how == "swap":
        other = draw(st.integers(0, len(made) - 1))
        made[place], made[other] = made[other], made[place]
    else:
        leaves = list(_numbers(made[place]))
        if leaves:
            holder, key = draw(st.sampled_from(leaves))
            # Java hands out row ids twice when one starts further on than it should, and has begun with
            # format version 4; we do neither.
            down = key in ("first-row-id", "format-version")
            holder[key] -= 1 if down else draw(st.sampled_from([1, -1, -7]))
    return made


def apart(updates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without removals of specs and schemas, if others are added at once.

    Java forgets to forget what it has removed, and takes a new spec for the old one of the same id.
    """
    actions = {update["action"] for update in updates}
    both = {
        removal
        for removal, addition in (("remove-partition-specs", "add-spec"), ("remove-schemas", "add-schema"))
        if {removal, addition} <= actions
    }
    return [update for update in updates if update["action"] not in both]


MOVABLE = {
    "schema-id",
    "spec-id",
    "sort-order-id",
    "snapshot-id",
    "parent-snapshot-id",
    "sequence-number",
    "source-id",
    "field-id",
    "format-version",
    "first-row-id",
}


def _numbers(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in MOVABLE and isinstance(inner, int):
                yield value, key
            else:
                yield from _numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _numbers(inner)


# --- tables ---


@checked
@given(data=st.data(), version=st.integers(1, 3))
def test_updates(oracle: Oracle, data: st.DataObject, version: int):
    side = new(oracle, version)
    for _ in range(data.draw(st.integers(1, 6))):
        updates = apart(data.draw(updates_for(side.document)))
        event(side.step({"requirements": [], "updates": updates}))


@checked
@given(data=st.data(), version=st.integers(1, 3))
def test_requirements_and_updates_that_do_not_fit(oracle: Oracle, data: st.DataObject, version: int):
    side = new(oracle, version)
    for _ in range(data.draw(st.integers(1, 6))):
        on = side.document
        updates = data.draw(updates_for(on))
        damaged = data.draw(st.booleans())
        if updates and damaged:
            updates = data.draw(mangled(updates))
        event(side.step({"requirements": data.draw(requirements(on)), "updates": apart(updates)}))


@checked
@given(data=st.data(), version=st.integers(1, 3), ids=st.integers(0, 100))
def test_create(oracle: Oracle, data: st.DataObject, version: int, ids: int):
    """What a random table has grown to, as the request for a new one, with ids of its own."""
    side = new(oracle, version)
    for _ in range(data.draw(st.integers(0, 4))):
        side.step({"requirements": [], "updates": apart(data.draw(updates_for(side.document)))})
    on = side.document

    def named(plural: str, key: str, current: int) -> Any:
        return next(each for each in on[plural] if each[key] == current)

    request = {
        "name": "t",
        "schema": _moved(named("schemas", "schema-id", on["current-schema-id"]), ids),
        "partition-spec": _moved(named("partition-specs", "spec-id", on["default-spec-id"]), ids),
        "write-order": _moved(named("sort-orders", "order-id", on["default-sort-order-id"]), ids),
        "properties": {**on["properties"], "format-version": str(on["format-version"]), "uuid": "x"},
    }
    note(json.dumps(request))
    decoded = iceberg.decode_create_table(json.dumps(request).encode())
    java = oracle("create-table", request, LOCATION)
    made = iceberg.new_table(
        decoded, location=LOCATION, now_ms=1, uuid=java["table-uuid"], file_id=str(uuid.uuid4())
    )
    assert normal(document(made.state), None) == normal(java, None)


def _moved(value: Any, by: int) -> Any:
    """The same with other ids of columns."""
    if isinstance(value, list):
        return [_moved(each, by) for each in value]
    if not isinstance(value, dict):
        return value
    columns = {"id", "element-id", "key-id", "value-id", "source-id"}
    return {key: inner + by if key in columns else _moved(inner, by) for key, inner in value.items()}


# --- views ---


@st.composite
def view_versions(draw: st.DrawFn, id_: int) -> dict[str, Any]:
    dialects = draw(st.lists(st.sampled_from(["spark", "trino", "Spark"]), min_size=1, max_size=2))
    return {
        "version-id": id_,
        "timestamp-ms": START_MS + draw(st.integers(0, 3)),
        "schema-id": draw(st.sampled_from([-1, -1, 0, 1])),
        "summary": {"engine-name": draw(st.sampled_from(["spark", "trino"]))},
        "default-namespace": ["s"],
        "representations": [
            {"type": "sql", "sql": f"SELECT {draw(st.integers(1, 3))}", "dialect": dialect}
            for dialect in dialects
        ],
    }


@st.composite
def view_updates(draw: st.DrawFn) -> list[dict[str, Any]]:
    names = [draw(st.sampled_from(["a", "b"])) for _ in range(2)]
    fields = [
        {"id": id_, "name": name, "required": False, "type": "long"} for id_, name in enumerate(names, 1)
    ]
    fields = fields[: 1 if names[0] == names[1] else 2]
    numbers = st.sampled_from([-1, -1, 1, 2, 3])
    makes: list[Any] = [
        lambda: {"action": "add-schema", "schema": schema(*fields, **{"schema-id": draw(st.integers(0, 3))})},
        lambda: {"action": "add-view-version", "view-version": draw(view_versions(draw(st.integers(1, 4))))},
        lambda: {"action": "set-current-view-version", "view-version-id": draw(numbers)},
        lambda: {
            "action": "set-properties",
            "updates": draw(
                st.dictionaries(
                    st.sampled_from(
                        ["a", "version.history.num-entries", "replace.drop-dialect.allowed", "comment"]
                    ),
                    st.sampled_from(["1", "2", "true"]),
                )
            ),
        },
        lambda: {"action": "remove-properties", "removals": draw(st.lists(st.sampled_from(["a", "b"])))},
        lambda: {"action": "set-location", "location": draw(st.sampled_from([LOCATION, f"{LOCATION}/v"]))},
        lambda: {"action": "upgrade-format-version", "format-version": draw(st.integers(1, 2))},
    ]
    return [draw(st.sampled_from(makes))() for _ in range(draw(st.integers(1, 5)))]


@checked
@given(data=st.data())
def test_views(oracle: Oracle, data: st.DataObject):
    request = {
        "name": "v",
        "schema": schema(**{"schema-id": 0}),
        "view-version": {**data.draw(view_versions(1)), "schema-id": 0},
        "properties": {"a": "1"},
    }
    note(json.dumps(request))
    java, ours = None, None
    try:
        java = oracle("create-view", request, LOCATION)
    except Failed as refused:
        event(f"refused: {refused.kind}")
    known = java["view-uuid"] if java else str(uuid.uuid4())
    with suppress(InverError):
        decoded = iceberg.decode_create_view(json.dumps(request).encode())
        ours = iceberg.new_view(decoded, location=LOCATION, now_ms=1, uuid=known, file_id=str(uuid.uuid4()))
    assert (java is None) == (ours is None)
    if java is None or ours is None:
        return
    assert normal(document(ours.state), None) == normal(java, None)
    side = Side(oracle, ours)
    for _ in range(data.draw(st.integers(1, 5))):
        event(side.step({"requirements": [], "updates": data.draw(view_updates())}))
