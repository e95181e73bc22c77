from __future__ import annotations

import re
from typing import get_args

import pytest

from inver.domain import ledger
from inver.domain.events import COMMITTED, KINDS, STAGED, cloud_type
from inver.stores.journal import EXECUTE

OPERATIONS = get_args(ledger.Operation)

# Consumers keep these words in their own code: they do not change.
PUBLISHED = {
    ledger.CreateCatalog: "catalog.created",
    ledger.AlterCatalog: "catalog.altered",
    ledger.DropCatalog: "catalog.dropped",
    ledger.CreateSchema: "schema.created",
    ledger.AlterSchema: "schema.altered",
    ledger.DropSchema: "schema.dropped",
    ledger.CreateTable: "table.created",
    ledger.Append: "table.committed",
    ledger.FinishTable: "table.created",
    ledger.CreateBranch: "table.branched",
    ledger.DropBranch: "table.branch-dropped",
    ledger.AddRecords: "table.versions-added",
    ledger.DeleteRecords: "table.versions-deleted",
    ledger.AlterTable: "table.altered",
    ledger.RenameTable: "table.renamed",
    ledger.DropTable: "table.dropped",
    ledger.UndropTable: "table.undropped",
    ledger.PurgeTable: "table.purged",
    ledger.MoveCursor: "cursor.moved",
}


def test_every_operation_has_a_kind_of_event_and_a_rule():
    assert len(OPERATIONS) >= len(PUBLISHED)
    # One of them changes nothing, and so has no event.
    assert {*KINDS, ledger.Expect} == set(OPERATIONS)
    assert set(EXECUTE) == set(OPERATIONS)


def test_a_kind_names_one_operation():
    """Except that a table is created in one step, or in two of which the first is its own kind."""
    kinds = [KINDS[operation] for operation in KINDS if operation is not ledger.FinishTable]
    assert len(set(kinds)) == len(kinds)
    assert STAGED not in KINDS.values()


@pytest.mark.parametrize(("operation", "kind"), PUBLISHED.items(), ids=PUBLISHED.values())
def test_published_kinds_stay(operation, kind):
    assert KINDS[operation] == kind


def test_a_commit_is_the_event_that_batches_write():
    assert PUBLISHED[ledger.Append] == COMMITTED
    # It stands as text in a statement.
    assert "'" not in COMMITTED


@pytest.mark.parametrize("kind", [*KINDS.values(), STAGED])
def test_a_kind_becomes_a_versioned_cloud_events_type(kind: str):
    assert re.fullmatch(r"[a-z]+\.[a-z]+(-[a-z]+)*", kind)
    assert cloud_type(kind) == f"io.inver.{kind}.v1"
