from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver import errors
from inver.domain.idempotency import (
    GRACE_MS,
    LIFETIME_MS,
    KeyedRequest,
    KeyRecord,
    expired,
    is_final,
    parse_key,
    require_same,
)
from inver.domain.ledger import ConflictDetail, Reason, Winner
from inver.domain.uuids import is_uuid
from inver.errors import Invalid, KeyReused, Refused
from inver.services.refusals import freeze, thaw

texts = st.text(st.characters(codec="utf-8"), max_size=20)
fixes = st.none() | texts
kinds = st.sampled_from(["catalog", "schema", "table", "resource", "location"])
values = st.none() | st.integers(-(2**63), 2**63 - 1) | texts
winners = st.builds(
    Winner,
    st.integers(0, 2**63 - 1),
    texts,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    texts,
)
conflicts = st.lists(
    st.builds(
        ConflictDetail,
        operation=st.integers(0, 999),
        subject=texts,
        reason=st.sampled_from(Reason),
        expected=values,
        current=values,
        winner=st.none() | winners,
    ),
    max_size=4,
)

# What a client may have acted upon is repeated; what depends on the moment or on who asks is not.
FINAL: dict[type[Refused], st.SearchStrategy[Refused]] = {
    errors.Invalid: st.builds(errors.Invalid, texts, field=fixes, fix=fixes),
    errors.NotFound: st.builds(errors.NotFound, texts, kind=kinds, fix=fixes),
    errors.AlreadyExists: st.builds(errors.AlreadyExists, texts, kind=kinds, fix=fixes),
    errors.NotEmpty: st.builds(errors.NotEmpty, texts, fix=fixes),
    errors.Conflict: st.builds(errors.Conflict, texts, conflicts, fix=fixes),
    errors.PreconditionFailed: st.builds(errors.PreconditionFailed, texts, conflicts, fix=fixes),
    errors.Unsupported: st.builds(errors.Unsupported, texts, fix=fixes),
}
MOMENTARY: dict[type[Refused], Callable[[], Refused]] = {
    errors.Refused: lambda: errors.Refused("no"),
    errors.TooLarge: lambda: errors.TooLarge("no"),
    errors.Unauthenticated: lambda: errors.Unauthenticated("no"),
    errors.TokenExpired: lambda: errors.TokenExpired("no"),
    errors.Forbidden: lambda: errors.Forbidden("no"),
    errors.KeyReused: lambda: errors.KeyReused("no"),
    errors.MethodNotAllowed: lambda: errors.MethodNotAllowed("no", ["GET"]),
    errors.RateLimited: lambda: errors.RateLimited("no"),
}


def tree(kind: type[Refused]) -> set[type[Refused]]:
    return {kind}.union(*(tree(below) for below in kind.__subclasses__()))


def parts(error: Refused) -> dict[str, object]:
    return {"type": type(error), "args": error.args, "operation": error.operation, **vars(error)}


def test_every_refusal_is_final_or_momentary():
    known = {kind for kind in tree(Refused) if kind.__module__ == errors.__name__}
    assert set(FINAL) | set(MOMENTARY) == known
    assert not set(FINAL) & set(MOMENTARY)


@given(st.one_of(*FINAL.values()))
def test_a_final_refusal_survives_its_stored_form_word_for_word(error: Refused):
    assert is_final(error)
    assert parts(thaw(freeze(error))) == parts(error)


@pytest.mark.parametrize("kind", FINAL, ids=lambda kind: kind.__name__)
def test_every_final_class_can_be_thawed(kind: type[Refused]):
    """Also with all it can say, whatever hypothesis happens to draw."""
    possible: dict[str, Any] = {"fix": "do that", "field": "name", "kind": "table"}
    known = inspect.signature(kind).parameters
    error = kind("message", **{name: value for name, value in possible.items() if name in known})
    assert parts(thaw(freeze(error))) == parts(error)


@pytest.mark.parametrize("kind", MOMENTARY, ids=lambda kind: kind.__name__)
def test_what_depends_on_the_moment_is_not_final(kind: type[Refused]):
    assert not is_final(MOMENTARY[kind]())


@pytest.mark.parametrize(
    "error",
    [
        errors.Unavailable("no"),
        errors.Overloaded("no"),
        errors.OutcomeUnknown("no"),
        errors.Broken("no"),
        RuntimeError("no"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_not_a_refusal_is_not_final(error: Exception):
    assert not is_final(error)


@given(st.uuids())
def test_a_key_is_a_uuid_of_any_version_in_any_case(value: uuid.UUID):
    assert parse_key(str(value)) == str(value)
    assert parse_key(str(value).upper()) == str(value)
    assert is_uuid(str(value))


@pytest.mark.parametrize(
    "value",
    [
        "",
        "key",
        "0" * 36,
        uuid.UUID(int=1).hex,
        f"{{{uuid.UUID(int=1)}}}",
        f"urn:uuid:{uuid.UUID(int=1)}",
        f" {uuid.UUID(int=1)}",
        f"{uuid.UUID(int=1)}\n",
        str(uuid.UUID(int=1)).replace("0", "０", 1),
        str(uuid.UUID(int=1)).replace("0", "g", 1),
    ],
)
def test_anything_else_is_no_key(value: str):
    with pytest.raises(Invalid) as refused:
        parse_key(value)
    assert refused.value.field == "Idempotency-Key"
    assert refused.value.fix
    assert not is_uuid(value)


REQUEST = KeyedRequest("scope", str(uuid.UUID(int=1)), "alice", "print")


def test_the_same_request_may_come_back():
    require_same(KeyRecord(REQUEST, 1, 2, b"[]"), REQUEST)


@pytest.mark.parametrize("field", KeyedRequest.__struct_fields__)
def test_a_key_belongs_to_one_request_of_one_principal(field: str):
    other = msgspec.structs.replace(REQUEST, **{field: "other"})
    with pytest.raises(KeyReused):
        require_same(KeyRecord(REQUEST, 1, 2, b"[]"), other)


@given(st.integers(0, 2**48), st.integers(0, 2 * (LIFETIME_MS + GRACE_MS)))
def test_a_record_lives_for_its_lifetime_and_the_grace(at: int, age: int):
    assert expired(at, at + age) == (age > LIFETIME_MS + GRACE_MS)


def test_the_last_moment_of_a_record():
    assert not expired(5, 5 + LIFETIME_MS + GRACE_MS)
    assert expired(5, 6 + LIFETIME_MS + GRACE_MS)
