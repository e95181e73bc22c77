"""A table that is renamed through Iceberg REST, and what others hold of it: shares, cursors, history."""

from __future__ import annotations

from tests.fixtures.iceberg import Table
from tests.fixtures.iceberg_sharing import Ice, ice, names
from tests.fixtures.sharing import provider

__all__ = ["ice", "provider"]


def test_shares_cursors_and_history_follow_the_id(ice: Ice) -> None:
    table = ice.iced()
    table.append("a")
    guest = table.shared()
    table_id = table.table.metadata["table-uuid"]
    cursor = f"flow/{table_id}"
    move = {"op": "move-cursor", "cursor": cursor, "expect": None, "value": "1"}
    ice.management("POST", "/transactions", {"operations": [move]})
    ice.post("/namespaces", {"namespace": ["other"]})
    name = f"{table.short}-moved"
    moved = {"namespace": ["other"], "name": name}
    ice.post("/tables/rename", {"source": table.table.identifier, "destination": moved})

    found = Table(ice, ("other",), name)
    assert (found.metadata["table-uuid"], found.metadata["location"]) == (table_id, table.location)
    assert names(guest.lines("POST", f"{table.name}/query", json={})) == ["a"]
    assert ice.management("GET", f"/cursors/flow%2F{table_id}")["value"] == "1"
    path = f"/catalogs/{ice.catalog}/schemas/other/tables/{name}/commits"
    assert [each["version"] for each in ice.management("GET", path)["commits"]] == [1, 0]

    # What gets the old name is another table, in a folder of its own, and not in the share.
    again = ice.table(table.short, ("sales",))
    assert again.metadata["location"] != table.location
    assert names(guest.lines("POST", f"{table.name}/query", json={})) == ["a"]
    ice.send("DELETE", f"{again.url}?purgeRequested=true")
    assert names(guest.lines("POST", f"{table.name}/query", json={})) == ["a"]
    assert len(found.metadata["snapshots"]) == 1
