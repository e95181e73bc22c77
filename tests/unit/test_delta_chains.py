"""The state of a table after a plain commit, from the state before it."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest

from inver.domain.delta import DeltaHead
from inver.domain.ledger import Receipt, Result
from inver.domain.principals import Principal, PrincipalKind
from inver.domain.tables import Format, State, Table, TableKind
from inver.services.context import Caller
from inver.services.delta import chains as module
from inver.services.delta.chains import Chains
from inver.services.delta.types import Definition, Snapshot, Tail

TABLE = Table(
    id="t",
    catalog_id="c",
    schema_id="s",
    name="orders",
    format=Format.DELTA,
    kind=TableKind.MANAGED,
    state=State.LIVE,
    location="file:///lake/t",
    version=4,
    etag=7,
    head=None,
    owner="me",
    created_at=1,
    created_by="me",
    updated_at=2,
    updated_by="me",
    dropped_at=None,
)
WRITER = Caller(Principal("w", "writer", PrincipalKind.USER))
KEEPER = Caller(Principal("k", "keeper", PrincipalKind.USER))
DEFINITION = Definition(etag=7, stored_head=None, head=DeltaHead(), columns=b"[]", properties={})


def begun(*waiting: int) -> Chains:
    chains = Chains()
    commits = json.dumps([{"v": version} for version in waiting], separators=(",", ":")).encode()
    chains.begin(Snapshot(TABLE, DEFINITION, Tail(commits, TABLE.version), False, 2))
    return chains


def extend(
    chains: Chains,
    version: int,
    published: int | None,
    etag: int = 7,
    table_id: str = "t",
    caller: Caller = WRITER,
    maintains: Callable[[Caller, str], bool] = lambda caller, table_id: False,
) -> Snapshot | None:
    receipt = Receipt(1, 50 + version, (Result(table_id, version),), False, etag, published)
    return chains.extend(table_id, b'{"v":%d}' % version, receipt, caller, maintains)


def told(snapshot: Snapshot | None) -> list[int]:
    assert snapshot is not None
    assert snapshot.tail is not None
    return [each["v"] for each in json.loads(snapshot.tail.commits)]


def test_commits_follow_each_other():
    chains = begun(4, 3)
    after = extend(chains, 5, published=2)
    assert told(after) == [5, 4, 3]
    assert after is not None
    assert after.tail is not None
    assert (after.tail.latest, after.updated_at) == (5, 55)
    assert after.definition is DEFINITION
    assert told(extend(chains, 6, published=5)) == [6]
    assert told(extend(chains, 7, published=5)) == [7, 6]


@pytest.mark.parametrize(
    ("version", "published", "etag"),
    [(6, 2, 7), (4, 2, 7), (5, 2, 8), (5, None, 7), (5, 1, 7), (5, 5, 7)],
    ids=["gap", "again", "altered", "not plain", "more is unpublished than known", "nothing is unpublished"],
)
def test_what_does_not_follow_ends_the_chain(version: int, published: int | None, etag: int):
    chains = begun(4, 3)
    assert extend(chains, version, published, etag) is None
    assert extend(chains, 5, published=2) is None


def test_who_may_maintain_a_table_is_not_asked_again():
    chains, asked = begun(4), []

    def maintains(caller: Caller, table_id: str) -> bool:
        asked.append((caller, table_id))
        return caller is KEEPER

    found = []
    for version, caller in enumerate((WRITER, KEEPER, KEEPER, WRITER, WRITER, KEEPER), start=5):
        after = extend(chains, version, published=version - 1, caller=caller, maintains=maintains)
        assert after is not None
        found.append(after.maintained)
    assert found == [False, True, True, False, False, True]
    # Who may not may be somebody of whom not everything is known at the moment.
    assert asked == [(WRITER, "t"), (KEEPER, "t"), (WRITER, "t"), (WRITER, "t")]


def test_nothing_is_known_of_what_the_catalog_does_not_manage():
    chains = Chains()
    chains.begin(Snapshot(TABLE, DEFINITION, None, False, 2))
    assert extend(chains, 5, published=4) is None


def test_chains_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LENGTH", 2)
    assert extend(begun(4, 3, 2), 5, published=3) is None
    chains = begun(4, 3)
    assert extend(chains, 5, published=2) is None
    monkeypatch.setattr(module, "CHAINS", 1)
    chains = begun(4)
    other = msgspec.structs.replace(TABLE, id="u")
    chains.begin(Snapshot(other, DEFINITION, Tail(b"[]", 4), False, 2))
    assert extend(chains, 5, published=4) is None
    assert told(extend(chains, 5, published=4, table_id="u")) == [5]
