"""The operations as methods. Each is named once, and both clients have it: one answers, one awaits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from inver.client.core import Call, Page
from inver.client.operations import care as caring
from inver.client.operations import containers, feed, identity, privileges, relations, sharing

if TYPE_CHECKING:
    from inver.client.loops import AsyncClient
    from inver.client.threads import Client

P = ParamSpec("P")
T = TypeVar("T")


class Method(Generic[P, T]):
    """An operation with one answer."""

    def __init__(self, make: Callable[P, Call[T]]) -> None:
        self._make = make

    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, Awaitable[T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Call[T]]: ...

    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self._make

        @wraps(self._make)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.run(self._make(*args, **kwargs))

        return call


class Listing(Generic[P, T]):
    """An operation with many answers; pages are fetched as the iterator moves on."""

    def __init__(self, make: Callable[P, Call[Page[T]]]) -> None:
        self._make = make

    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: None, owner: type) -> Callable[P, Call[Page[T]]]: ...

    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self._make

        @wraps(self._make)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.items(self._make(*args, **kwargs))

        return call


class Operations:
    catalogs = Listing(containers.catalogs)
    catalog = Method(containers.catalog)
    create_catalog = Method(containers.create_catalog)
    alter_catalog = Method(containers.alter_catalog)
    delete_catalog = Method(containers.delete_catalog)
    schemas = Listing(containers.schemas)
    schema = Method(containers.schema)
    create_schema = Method(containers.create_schema)
    alter_schema = Method(containers.alter_schema)
    delete_schema = Method(containers.delete_schema)

    tables = Listing(relations.tables)
    dropped_tables = Listing(relations.dropped_tables)
    table = Method(relations.table)
    table_by_id = Method(relations.table_by_id)
    create_table = Method(relations.create_table)
    alter_table = Method(relations.alter_table)
    rename_table = Method(relations.rename_table)
    drop_table = Method(relations.drop_table)
    undrop_table = Method(relations.undrop_table)
    history = Method(relations.history)
    metrics = Method(relations.metrics)
    transact = Method(relations.transact)
    transaction = Method(relations.transaction)

    events = Listing(feed.events)
    cursor = Method(feed.cursor)
    search = Listing(feed.search)
    info = Method(feed.info)
    doctor = Method(feed.doctor)
    retry_work = Method(feed.retry_work)

    whoami = Method(identity.whoami)
    principals = Listing(identity.principals)
    principal = Method(identity.principal)
    create_principal = Method(identity.create_principal)
    alter_principal = Method(identity.alter_principal)
    delete_principal = Method(identity.delete_principal)
    members = Listing(identity.members)
    add_member = Method(identity.add_member)
    remove_member = Method(identity.remove_member)
    create_token = Method(identity.create_token)
    tokens = Listing(identity.tokens)
    revoke_token = Method(identity.revoke_token)
    create_secret = Method(identity.create_secret)
    secrets = Listing(identity.secrets)
    revoke_secret = Method(identity.revoke_secret)
    access_token = Method(identity.access_token)

    grants = Listing(privileges.grants)
    grant = Method(privileges.grant)
    revoke = Method(privileges.revoke)
    explain = Method(privileges.explain)

    shares = Listing(sharing.shares)
    share = Method(sharing.share)
    create_share = Method(sharing.create_share)
    drop_share = Method(sharing.drop_share)
    add_to_share = Method(sharing.add_to_share)
    remove_from_share = Method(sharing.remove_from_share)
    grant_share = Method(sharing.grant_share)
    revoke_share = Method(sharing.revoke_share)
    recipients = Listing(sharing.recipients)
    recipient = Method(sharing.recipient)
    create_recipient = Method(sharing.create_recipient)
    alter_recipient = Method(sharing.alter_recipient)
    drop_recipient = Method(sharing.drop_recipient)
    rotate_recipient = Method(sharing.rotate_recipient)
    revoke_recipient = Method(sharing.revoke_recipient)

    care_tables = Listing(caring.care_tables)
    care = Method(caring.care)
    care_plan = Method(caring.care_plan)
    start_care = Method(caring.start_care)
    next_care = Method(caring.next_care)
    care_heartbeat = Method(caring.care_heartbeat)
    finish_care = Method(caring.finish_care)
    care_runs = Listing(caring.care_runs)
    care_run = Method(caring.care_run)
    care_scheduler = Method(caring.care_scheduler)
    care_policy = Method(caring.care_policy)
    set_care_policy = Method(caring.set_care_policy)
    drop_care_policy = Method(caring.drop_care_policy)
