"""The part of the demo that shares a table: read by the official client, with its changes, then refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inver.client import Client

Say = Callable[[str, str], None]

PYTHON = "INVER_DEMO_SHARING_PYTHON"
"""Names an interpreter that has the packages `delta-sharing` and `deltalake`, if this one has not."""
_SHARE, _TABLE = "partners", "partners.sales.shipments"

_WRITE = """
import sys, pyarrow as pa
from deltalake import DeltaTable, write_deltalake

folder = sys.argv[1]
rows = lambda ids, regions: pa.table({"id": pa.array(ids, pa.int64()), "region": regions})
write_deltalake(folder, rows([1, 2, 3], ["EU", "US", "EU"]), partition_by=["region"],
                configuration={"delta.enableChangeDataFeed": "true"})
write_deltalake(folder, rows([4], ["US"]), mode="append")
DeltaTable(folder).delete("id = 1")
print(DeltaTable(folder).version())
"""
_READ = """
import json, sys
import delta_sharing

url = f"{sys.argv[1]}#{sys.argv[2]}"
try:
    rows = delta_sharing.load_as_pandas(url)
    changes = delta_sharing.load_table_changes_as_pandas(url, starting_version=0)
    told = zip(changes["_commit_version"], changes["_change_type"], changes["id"])
    changed = sorted([int(version), kind, int(id)] for version, kind, id in told)
    print(json.dumps({"ids": sorted(rows["id"].tolist()), "changes": changed}))
except Exception as error:
    print(json.dumps({"refused": str(error).splitlines()[0]}))
"""


def show(client: Client, home: Path, lake: Path, say: Say) -> None:
    """Share an external Delta table with another organisation, and take it back."""
    python = _interpreter()
    if python is None:
        say("sharing", f"skipped: install delta-sharing and deltalake, or set {PYTHON}")
        return
    folder = lake / "shipments"
    version = _run(python, _WRITE, str(folder)).strip()
    client.create_table("main.sales.shipments", "DELTA", location=str(folder))
    client.create_share(_SHARE)
    client.add_to_share(_SHARE, "main.sales.shipments")
    made = client.create_recipient("acme", activate=False)
    client.grant_share(_SHARE, "acme")
    profile = home.parent / "acme.share"
    profile.write_text(json.dumps(made.profile))
    say("share", f"{_TABLE} at version {version} is given to the recipient acme")
    read = _read(python, profile)
    say("recipient", f"reads ids {read['ids']} with the official client")
    for at, kind, number in read["changes"]:
        say("change", f"version {at}: {kind} of id {number}")
    client.revoke_recipient("acme")
    say("revoked", f"and the next request is refused: {_read(python, profile)['refused']}")


def _interpreter() -> str | None:
    given = os.environ.get(PYTHON)
    if given:
        return given
    installed = all(find_spec(name) is not None for name in ("delta_sharing", "deltalake"))
    return sys.executable if installed else None


def _read(python: str, profile: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(_run(python, _READ, str(profile), _TABLE))
    return told


# The data libraries' threads are torn down in no order when an interpreter ends, which aborts now and then.
_LEAVE = """
import os
sys.stdout.flush()
os._exit(0)
"""


def _run(python: str, program: str, *arguments: str) -> str:
    ran = subprocess.run(
        [python, "-c", program + _LEAVE, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return ran.stdout
