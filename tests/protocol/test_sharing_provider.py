"""Shares and recipients as their provider handles them: the management API, the client and the commands."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import httpx

from inver.client import Client
from tests.fixtures.cli import Shell
from tests.fixtures.delta_log import FIELDS, PROTOCOL, LogFolder, add, metadata
from tests.fixtures.sharing import Guest, Provider, provider

__all__ = ["provider"]


def test_a_share_shows_what_it_has_and_who_has_it(provider: Provider):
    provider.table("orders", add("a.parquet"), partitions=("day",))
    share = provider.share({"orders": {"as": ["sales", "sold"], "start_version": 0}})
    guest = provider.recipient(share)
    where = {"schema": "sales", "table": "sold", "where": "day = '2024-01-01'"}
    provider.ok("PUT", f"/shares/{share}/recipients/{guest.name}", json={"filters": [where]})
    shown = provider.ok("GET", f"/shares/{share}")
    (item,) = shown["items"]
    assert (item["schema"], item["table"], item["source"]) == (
        "sales",
        "sold",
        [provider.catalog, "sales", "orders"],
    )
    assert [(each["recipient"], each["filters"]) for each in shown["recipients"]] == [(guest.name, [where])]
    assert share in [each["name"] for each in provider.ok("GET", "/shares?max_results=1000")["shares"]]


def test_names_and_sources_are_checked(provider: Provider):
    provider.table("orders", add("a.parquet"))
    share = provider.share({"orders": {}})
    call = provider.server.call
    items = f"/shares/{share}/items"
    orders = [provider.catalog, "sales", "orders"]
    for status, path, body in (
        (409, "/shares", {"name": share.upper()}),
        (400, "/shares", {"name": "with space"}),
        (400, "/shares", {"name": "a/b"}),
        (400, "/shares", {"name": "a.b"}),
        (404, "/shares/none/items", {"name": orders}),
        (404, items, {"name": [*orders[:2], "none"]}),
        (404, items, {"kind": "schema", "name": [provider.catalog, "none"]}),
        (409, items, {"name": orders}),
        (400, items, {"name": orders, "as": ["sales"]}),
        (400, items, {"name": orders, "as": ["a.b", "c"]}),
        (400, items, {"name": orders, "start_version": -1}),
        (400, items, {"kind": "schema", "name": orders[:2], "as": ["all"], "history": False}),
        (400, "/recipients", {"name": "r", "networks": ["10.0.0.1/8"]}),
        (400, "/recipients", {"name": "r", "expires_in_s": 0}),
        (400, "/recipients", {"name": "r", "nothing": 1}),
        (404, "/recipients/none/rotate", {}),
    ):
        answer = call("POST", path, json=body)
        assert answer.status_code == status, (path, body, answer.text)
    assert call("PUT", f"/shares/{share}/recipients/none", json={}).status_code == 404
    assert call("DELETE", f"/shares/{share}/recipients/none").status_code == 404
    assert call("DELETE", f"/shares/{share}/schemas/sales").status_code == 404
    assert call("DELETE", f"/shares/{share}/schemas/sales/tables/orders").status_code == 204


def test_what_is_dropped_is_gone(provider: Provider):
    provider.table("orders", add("a.parquet"))
    share = provider.share({"orders": {}})
    guest = provider.recipient(share)
    provider.ok("DELETE", f"/shares/{share}")
    guest.refused(404, "GET", f"{share}.sales.orders/version")
    assert provider.server.call("GET", f"/shares/{share}").status_code == 404
    provider.ok("DELETE", f"/recipients/{guest.name}")
    guest.refused(401, "GET", "/shares")
    assert provider.server.call("GET", f"/recipients/{guest.name}").status_code == 404


def test_who_owns_shares_cannot_be_deleted(provider: Provider):
    name = provider.catalog
    provider.ok("POST", "/principals", json={"name": name})
    grant = {"principal": name, "privileges": ["CREATE SHARE"], "securable": {"kind": "metastore"}}
    provider.ok("POST", "/grants", json=grant)
    token = provider.ok("POST", "/tokens", json={"principal": name})["token"]
    with Client(provider.server.url, token) as client:
        client.create_share(name)
        assert [share.name for share in client.shares()] == [name]
    assert provider.server.call("DELETE", f"/principals/{name}").status_code == 409
    provider.ok("DELETE", f"/shares/{name}")
    provider.ok("DELETE", f"/principals/{name}")


def test_credentials_are_listed_without_their_secrets(provider: Provider):
    guest = provider.recipient()
    guest.good("GET", "/shares")
    provider.ok("POST", f"/recipients/{guest.name}/rotate", json={"grace_s": 60})
    shown = provider.ok("GET", f"/recipients/{guest.name}")
    assert [each["kind"] for each in shown["credentials"]] == ["token", "activation"]
    assert guest.profile["bearerToken"].split("_", 3)[3] not in json.dumps(shown)
    for _ in range(7):
        provider.ok("POST", f"/recipients/{guest.name}/rotate", json={"grace_s": 60, "activate": False})
    answer = provider.server.call(
        "POST", f"/recipients/{guest.name}/rotate", json={"grace_s": 60, "activate": False}
    )
    assert answer.status_code == 409
    guest.good("GET", "/shares")
    provider.ok("POST", f"/recipients/{guest.name}/rotate", json={"activate": False})
    guest.refused(401, "GET", "/shares")


def test_the_commands(shell: Shell, tmp_path: Path):
    """As they are written down: register, create, add, grant, read, rotate, revoke."""
    log = LogFolder(Path(shell.server.home).with_name("lake") / tmp_path.name)
    feed = {"delta__enableChangeDataFeed": "true"}
    log.commit(0, PROTOCOL, metadata(("day",), FIELDS, **feed), add("a.parquet", 1, {"day": "2024-01-01"}))
    log.commit(1, add("b.parquet", 2, {"day": "2024-01-02"}))
    shell.good("schema", "create", "main.shared")
    shell.good("table", "register", "main.shared.t", "--format", "delta", "--location", str(log.folder))
    shell.good("share", "create", "cli")
    shell.good("share", "add", "cli", "main.shared.t", "--as", "sales.orders", "--start-version", "1")
    shell.good("share", "add", "cli", "main.shared.t", "--as", "sales.latest", "--no-history")
    profile = tmp_path / "acme.share"
    assert shell.good("recipient", "create", "acme", "--profile", str(profile), "--quiet").out.strip() == str(
        profile
    )
    assert stat.S_IMODE(profile.stat().st_mode) == 0o600
    assert "exists already" in shell.refused(1, "recipient", "create", "other", "--profile", str(profile))
    shell.good("share", "grant", "cli", "acme")
    guest = Guest(shell.server, "acme", json.loads(profile.read_text()))
    assert guest.profile["shareCredentialsVersion"] == 1
    assert guest.profile["endpoint"] == shell.server.url + "/delta-sharing"
    assert len(guest.lines("POST", "cli.sales.orders/query", json={})) == 4
    guest.refused(400, "POST", "cli.sales.orders/query", json={"version": 0})
    guest.refused(400, "GET", "cli.sales.latest/changes", params={"startingVersion": 0})
    shell.good("share", "grant", "cli", "acme", "--where", "sales.orders=day = '2024-01-02'")
    assert len(guest.lines("POST", "cli.sales.orders/query", json={})) == 3
    new = tmp_path / "new.share"
    shell.good("recipient", "rotate", "acme", "--profile", str(new), "--grace", "1h")
    rotated = Guest(shell.server, "acme", json.loads(new.read_text()))
    for each in (guest, rotated):
        each.good("GET", "/shares")
    shell.good("recipient", "revoke", "acme")
    for each in (guest, rotated):
        each.refused(401, "GET", "/shares")
    link = shell.good("recipient", "create", "linked", "--quiet").out.strip()
    given = httpx.post(link).json()
    Guest(shell.server, "linked", given).good("GET", "/shares")
    assert httpx.post(link).status_code == 404
    shown = shell.good("recipient", "list", "-o", "json").json
    assert {"acme", "linked"} <= {each["name"] for each in shown}
