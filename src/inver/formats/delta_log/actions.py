"""The lines of commit files, log compactions and checkpoints in JSON."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from inver.domain.delta_actions import (
    Add,
    AppTransaction,
    Cdc,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Sidecar,
    TableState,
)
from inver.errors import Invalid


class Action(msgspec.Struct, rename="camel", gc=False):
    """One line: one of these, or something that readers of tables need not know."""

    add: Add | None = None
    remove: Remove | None = None
    cdc: Cdc | None = None
    commit_info: CommitInfo | None = None
    protocol: Protocol | None = None
    meta_data: Metadata | None = None
    domain_metadata: DomainMetadata | None = None
    txn: AppTransaction | None = None
    sidecar: Sidecar | None = None


_decode = msgspec.json.Decoder(Action).decode


def actions(data: bytes | BinaryIO, path: str) -> Iterator[Action]:
    """Every line of a file of the log, or Invalid, which names the file and the line."""
    for number, line in enumerate(io.BytesIO(data) if isinstance(data, bytes) else data, start=1):
        if line.isspace():
            continue
        try:
            yield _decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise damaged(f"line {number} of {path} has no Delta action: {error}") from None


def first_action(head: bytes) -> Action | None:
    """The first line of a commit, if the bytes that were read hold all of it."""
    line, end, _ = head.partition(b"\n")
    if not end and not line.rstrip().endswith(b"}"):
        return None
    try:
        return _decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None


def note(state: TableState, action: Action) -> None:
    """Take over what an action says of the table; later ones win."""
    if action.protocol is not None:
        state.protocol = action.protocol
    elif action.meta_data is not None:
        state.metadata = action.meta_data
    elif action.domain_metadata is not None:
        domain = action.domain_metadata
        if domain.removed:
            state.domains.pop(domain.domain, None)
        else:
            state.domains[domain.domain] = domain.configuration
    elif action.txn is not None:
        state.transactions[action.txn.app_id] = action.txn


def damaged(problem: str) -> Invalid:
    """The table cannot be read, however often one tries: so no failure of the server."""
    return Invalid(f"the Delta log is damaged: {problem}", field="table")
