"""Bodies of requests, in the words of the specification. What else is in them is not looked at."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from inver.domain.lance import LAST_VERSION

T = TypeVar("T")
Number = Annotated[int, Meta(ge=0, le=LAST_VERSION)]
Signed = Annotated[int, Meta(ge=-(2**63), le=LAST_VERSION)]
Key = Annotated[str, Meta(min_length=1, max_length=1_024)]
MAX_RANGES = 10_000


class Named(msgspec.Struct, frozen=True):
    id: tuple[str, ...] | None = None


class Body(Named, frozen=True, kw_only=True):
    """Common to all: the id once more."""


class CreateNamespace(Body, frozen=True, kw_only=True):
    mode: str | None = None
    properties: dict[str, str] | None = None


class DropNamespace(Body, frozen=True, kw_only=True):
    mode: str | None = None
    behavior: str | None = None


class DeclareTable(Body, frozen=True, kw_only=True):
    location: str | None = None
    vend_credentials: bool | None = None
    properties: dict[str, str] | None = None


class RegisterTable(Body, frozen=True, kw_only=True):
    location: str
    mode: str | None = None
    properties: dict[str, str] | None = None


class DescribeTable(Body, frozen=True, kw_only=True):
    version: Number | None = None
    tag: str | None = None
    branch: str | None = None
    with_table_uri: bool | None = None
    load_detailed_metadata: bool | None = None
    check_declared: bool | None = None
    vend_credentials: bool | None = None


class AtVersion(Body, frozen=True, kw_only=True):
    version: Number | None = None
    branch: str | None = None


class RenameTable(Body, frozen=True, kw_only=True):
    new_table_name: str
    new_namespace_id: tuple[str, ...] | None = None


class ListVersions(Body, frozen=True, kw_only=True):
    page_token: str | None = None
    limit: Signed | None = None
    descending: bool | None = None
    branch: str | None = None


class CreateVersion(Body, frozen=True, kw_only=True):
    version: Number
    manifest_path: str
    manifest_size: Number | None = None
    e_tag: str | None = None
    metadata: dict[str, str] | None = None
    naming_scheme: str | None = None
    branch: str | None = None


class Range(msgspec.Struct, frozen=True):
    start_version: Signed
    end_version: Signed


class DeleteVersions(Body, frozen=True, kw_only=True):
    ranges: Annotated[tuple[Range, ...], Meta(max_length=MAX_RANGES)]
    branch: str | None = None


class BatchCreate(Body, frozen=True, kw_only=True):
    entries: tuple[CreateVersion, ...]


class Operation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    declare_table: DeclareTable | None = None
    create_table_version: CreateVersion | None = None
    delete_table_versions: DeleteVersions | None = None
    deregister_table: Body | None = None


class BatchCommit(Body, frozen=True, kw_only=True):
    operations: tuple[Operation, ...]


class TagBody(Body, frozen=True, kw_only=True):
    tag: str
    version: Number | None = None
    branch: str | None = None


class BranchBody(Body, frozen=True, kw_only=True):
    name: str
    version: Number | None = None
    tag: str | None = None
    from_branch: str | None = None
    from_version: Number | None = None
    from_tag: str | None = None


class ListIndices(Body, frozen=True, kw_only=True):
    version: Number | None = None
    branch: str | None = None
    page_token: str | None = None
    limit: Signed | None = None


class SetStatus(msgspec.Struct, frozen=True):
    status: str | None = None


class SetProperty(msgspec.Struct, frozen=True):
    key: Key
    value: str | None = None
    mode: str | None = None


class UnsetProperty(msgspec.Struct, frozen=True):
    key: Key
    mode: str | None = None


class Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    set_status: SetStatus | None = msgspec.field(default=None, name="setStatusAction")
    set_property: SetProperty | None = msgspec.field(default=None, name="setPropertyAction")
    unset_property: UnsetProperty | None = msgspec.field(default=None, name="unsetPropertyAction")


class AlterTransaction(Body, frozen=True, kw_only=True):
    actions: Annotated[tuple[Action, ...], Meta(max_length=1_000)]


body = msgspec.json.Decoder(Body).decode
create_namespace = msgspec.json.Decoder(CreateNamespace).decode
drop_namespace = msgspec.json.Decoder(DropNamespace).decode
declare_table = msgspec.json.Decoder(DeclareTable).decode
register_table = msgspec.json.Decoder(RegisterTable).decode
describe_table = msgspec.json.Decoder(DescribeTable).decode
at_version = msgspec.json.Decoder(AtVersion).decode
rename_table = msgspec.json.Decoder(RenameTable).decode
list_versions = msgspec.json.Decoder(ListVersions).decode
create_version = msgspec.json.Decoder(CreateVersion).decode
operation = msgspec.json.Decoder(Operation).decode
delete_versions = msgspec.json.Decoder(DeleteVersions).decode
batch_create = msgspec.json.Decoder(BatchCreate).decode
batch_commit = msgspec.json.Decoder(BatchCommit).decode
tag_body = msgspec.json.Decoder(TagBody).decode
branch_body = msgspec.json.Decoder(BranchBody).decode
list_indices = msgspec.json.Decoder(ListIndices).decode
alter_transaction = msgspec.json.Decoder(AlterTransaction).decode
