"""Every command against a real server, and what it prints."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest

from inver.client import Client
from tests.fixtures.cli import Shell, new
from tests.fixtures.server import InverServer, run_inver, running_inver, spawn
from tests.fixtures.waiting import PATIENCE_S


@pytest.fixture
def schema(shell: Shell) -> str:
    name = f"main.s{uuid.uuid4().hex[:10]}"
    shell.good("schema", "create", name)
    return name


# --- catalogs, schemas, tables ---


def test_catalog(shell: Shell) -> None:
    name = new("c")
    made = shell.good(
        "catalog", "create", name, "--comment", "x", "--set", "a=1", "--set", "b=2=3", "-o", "json"
    )
    assert made.json["properties"] == {"a": "1", "b": "2=3"}
    assert shell.good("catalog", "list").rows[0] == ["NAME", "OWNER", "CREATED", "COMMENT"]
    assert name in shell.good("catalog", "list", "--quiet").out.splitlines()
    changed = shell.good(
        "catalog", "alter", name, "--unset", "a", "--set", "c=4", "--comment", "", "-o", "json"
    )
    assert changed.json["properties"] == {"b": "2=3", "c": "4"}
    assert changed.json["comment"] is None
    assert ["name", name] in shell.good("catalog", "show", name).rows
    assert shell.good("catalog", "rename", name, name + "x", "-q").out == f"{name}x\n"
    assert "does not exist" in shell.refused(3, "catalog", "rename", name, name + "y")
    name += "x"
    assert shell.good("catalog", "delete", name).out == f"deleted {name}\n"
    assert shell.refused(3, "catalog", "show", name).startswith(f"inver: catalog '{name}' does not exist\n")


def test_catalog_owner(shell: Shell, user: str) -> None:
    name = new("c")
    shell.good("catalog", "create", name)
    owner = shell.good("principal", "show", user, "-o", "json").json["id"]
    assert shell.good("catalog", "alter", name, "--owner", user, "-o", "json").json["owner"] == owner


def test_nothing_to_alter(shell: Shell) -> None:
    assert "nothing to change" in shell.refused(1, "catalog", "alter", "main")


def test_schema(shell: Shell, schema: str) -> None:
    inner = f"{schema}.`a.b`"
    shell.good("schema", "create", inner, "--comment", "nested")
    assert shell.good("schema", "list", schema, "--quiet").out == inner.removeprefix("main.") + "\n"
    assert shell.good("schema", "show", inner, "-o", "json").json["path"] == [schema[5:], "a.b"]
    assert shell.good("schema", "alter", inner, "--set", "k=v", "-o", "json").json["properties"] == {"k": "v"}
    assert "not empty" in shell.refused(4, "schema", "delete", schema)
    renamed = shell.good("schema", "rename", inner, "c.d", "-q").out
    inner = f"{schema}.`c.d`"
    assert renamed == inner.removeprefix("main.") + "\n"
    assert shell.good("schema", "delete", inner, "-o", "json").json == {"deleted": inner}


def test_table(shell: Shell, schema: str, tmp_path: Path) -> None:
    columns = tmp_path / "columns.json"
    columns.write_text('[{"name": "id", "type": "long"}]')
    name = f"{schema}.t"
    made = shell.good("table", "create", name, "--format", "iceberg", "--columns", str(columns), "-o", "json")
    assert (made.json["format"], made.json["columns"]) == ("ICEBERG", [{"name": "id", "type": "long"}])
    assert shell.good("table", "list", schema).rows[1][:4] == ["t", "ICEBERG", "MANAGED", "0"]
    assert shell.good("table", "alter", name, "--comment", "new", "-o", "json").json["comment"] == "new"
    assert shell.good("table", "rename", name, f"{schema}.u", "--quiet").out == f"{schema}.u\n"
    assert shell.good("table", "drop", f"{schema}.u").out == f"dropped {schema}.u\n"
    dropped = shell.good("table", "list", schema, "--dropped", "--quiet").out.strip()
    assert dropped == made.json["id"]
    assert shell.good("table", "undrop", dropped, "--to", name, "-q").out == f"{name}\n"
    assert shell.good("table", "show", name, "-o", "json").json["id"] == dropped


def test_register(shell: Shell, schema: str, cli_server: InverServer) -> None:
    place = cli_server.home.with_name("lake") / new()
    arguments = ("table", "register", f"{schema}.e", "--format", "DELTA", "--location", str(place))
    assert shell.good(*arguments, "--version", "7", "-o", "json").json["version"] == 7
    assert "overlaps" in shell.refused(4, *arguments[:2], f"{schema}.f", *arguments[3:])
    outside = shell.refused(1, *arguments[:2], f"{schema}.g", *arguments[3:-1], "/elsewhere")
    assert "field: " in outside
    assert "to fix: add its root to storage.external_roots" in outside


def test_history(shell: Shell, schema: str) -> None:
    name = f"{schema}.t"
    shell.good("table", "create", name, "--format", "delta")
    with Client(shell.server.url, shell.server.token) as client:
        for version in (1, 2, 3):
            counts = {"rows_added": 10, "rows_removed": version}
            commit = {
                "op": "commit",
                "version": version,
                "token": new(),
                "operation": "merge",
                "counts": counts,
            }
            client.transact([{**commit, "table": {"name": name.split(".")}}])
    assert shell.good("table", "history", name, "--quiet").out.split() == ["3", "2", "1"]
    row = shell.good("table", "history", name, "--last", "2", "--limit", "1").rows[1]
    assert row[0] == "2"
    assert "merge" in row
    assert row[-3:-1] == ["+10", "-2"]


# --- identity ---


def test_principal(shell: Shell) -> None:
    name = new("p")
    made = shell.good("principal", "create", name, "--kind", "service", "--comment", "robot", "-o", "json")
    assert (made.json["kind"], made.json["comment"]) == ("service", "robot")
    assert name in shell.good("principal", "list", "--kind", "service", "-q").out.split()
    assert shell.good("principal", "disable", name, "-o", "json").json["disabled"] is True
    assert shell.good("principal", "enable", name, "-o", "json").json["disabled"] is False
    shell.good("principal", "delete", name)
    shell.refused(3, "principal", "show", name)
    assert shell.good("principal", "whoami", "-q").out == "admin\n"


def test_secrets(shell: Shell) -> None:
    name = new("p")
    shell.good("principal", "create", name, "--kind", "service")
    made = shell.good(
        "principal", "secret", "create", name, "--label", "x", "--expires", "1h", "-o", "json"
    ).json
    assert made["client_secret"]
    assert made["expires_at"]
    listed = shell.good("principal", "secret", "list", name, "-o", "json").json
    assert [(secret["id"], secret["label"], secret["revoked_at"]) for secret in listed] == [
        (made["id"], "x", None)
    ]
    shell.good("principal", "secret", "revoke", name, made["id"])
    pair = shell.good("principal", "secret", "create", name, "-q").out
    assert pair.count(":") == 1


def test_group(shell: Shell, user: str) -> None:
    name = new("g")
    shell.good("group", "create", name, "--comment", "x")
    assert name in shell.good("group", "list", "-q").out.split()
    shell.good("group", "add", name, user, "admin")
    assert sorted(shell.good("group", "show", name, "-o", "json").json["members"]) == sorted([user, "admin"])
    shell.good("group", "remove", name, "admin")
    assert shell.good("group", "show", name, "-o", "json").json["members"] == [user]
    shell.good("group", "delete", name)
    assert "not a group" in shell.refused(3, "group", "show", user)
    assert "not a group" in shell.refused(3, "group", "delete", user)
    assert shell.good("principal", "show", user, "-q").out == f"{user}\n"


def test_token(shell: Shell, user: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = shell.good(
        "token",
        "create",
        "--principal",
        user,
        "--expires",
        "30d",
        "--scope",
        "read",
        "--label",
        "l",
        "-o",
        "json",
    ).json
    assert made["token"].startswith("inver_pat_")
    (listed,) = shell.good("token", "list", "--principal", user, "-o", "json").json
    assert (listed["id"], listed["scope"], listed["label"]) == (made["id"], "read", "l")
    assert made["token"] not in shell.good("token", "list", "--principal", user).out
    file = tmp_path / "token"
    file.write_text(made["token"] + "\n")
    assert shell.good("principal", "whoami", "-q", "--token-file", str(file)).out == f"{user}\n"
    monkeypatch.setenv("INVER_TOKEN", made["token"])
    assert shell.good("principal", "whoami", "-q").out == f"{user}\n"
    monkeypatch.delenv("INVER_TOKEN")
    shell.good("token", "revoke", made["id"])
    assert shell.refused(1, "principal", "whoami", "--token-file", str(file)).startswith("inver: ")


def test_grants(shell: Shell, schema: str, user: str) -> None:
    shell.good("table", "create", f"{schema}.t", "--format", "delta")
    denied = shell("grant", "explain", user, "read", f"{schema}.t")
    assert denied.code == 1
    assert f"{user} may not read table {schema}.t" in denied.out
    assert "missing USE CATALOG on catalog main" in denied.out
    assert shell("grant", "explain", user, "read", f"{schema}.t", "-q").out == "no\n"
    shell.good("grant", "add", user, "use catalog", "main")
    added = shell.good("grant", "add", user, "Use  Schema, select", schema, "-o", "json").json
    assert sorted(grant["privilege"] for grant in added) == ["SELECT", "USE SCHEMA"]
    shell.good("grant", "add", user, "MODIFY", f"table:{schema}.t")
    allowed = shell.good("grant", "explain", user, "read", f"{schema}.t", "-o", "json").json
    assert (allowed["allowed"], allowed["securable"]["kind"]) == (True, "table")
    held = shell.good("grant", "list", "--principal", user, "-q").out.split("\n")
    assert sorted(filter(None, held)) == ["MODIFY", "SELECT", "USE CATALOG", "USE SCHEMA"]
    assert user in shell.good("grant", "list", schema).out
    left = shell.good("grant", "remove", user, "SELECT", f"schema:{schema}", "-q")
    assert left.out == "USE SCHEMA\n"
    assert "is not a privilege" in shell.refused(1, "grant", "add", user, "DANCE", schema)
    assert "for a securable or a principal" in shell.refused(1, "grant", "list")
    shell.good("grant", "add", user, "CREATE CATALOG", "metastore")


# --- transactions, events, search ---


def test_transaction(shell: Shell, schema: str, tmp_path: Path) -> None:
    names = [[*schema.split("."), name] for name in ("a", "b")]
    operations = [{"op": "create-table", "name": name, "format": "LANCE"} for name in names]
    file = tmp_path / "changes.json"
    file.write_text(json.dumps({"operations": operations}))
    key = str(uuid.uuid4())
    first = shell.good("transaction", "run", str(file), "--key", key, "-o", "json").json
    again = shell.good("transaction", "run", str(file), "--key", key, "-o", "json").json
    assert (first["replayed"], again["replayed"]) == (False, True)
    assert again["transaction"] == first["transaction"]
    shown = shell.good("transaction", "show", first["transaction"], "-o", "json").json
    assert [event["data"]["name"] for event in shown["events"]] == ["a", "b"]
    assert len(shell.good("transaction", "show", first["transaction"]).rows) == 3
    clash = shell.refused(4, "transaction", "run", str(file))
    assert "already exists" in clash
    shell.refused(3, "transaction", "show", "999999")


def test_a_lost_race_names_the_winner(shell: Shell, schema: str, tmp_path: Path) -> None:
    shell.good("table", "create", f"{schema}.t", "--format", "delta")
    file = tmp_path / "commit.json"
    commit = {"op": "commit", "table": {"name": [*schema.split("."), "t"]}, "version": 1}
    file.write_text(json.dumps({"operations": [{**commit, "token": "one"}]}))
    won = shell.good("transaction", "run", str(file), "-q").out.strip()
    file.write_text(json.dumps({"operations": [{**commit, "token": "two"}]}))
    lost = shell.refused(4, "transaction", "run", str(file))
    assert "version 1 is taken" in lost
    assert f"won by transaction {won}, version 1" in lost


@pytest.mark.parametrize("content", ["", "[]", "{", '{"operations": 1}'])
def test_a_file_that_is_no_transaction(shell: Shell, tmp_path: Path, content: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(content)
    shell.refused(1, "transaction", "run", str(file))


def test_events(shell: Shell, schema: str) -> None:
    shell.good("table", "create", f"{schema}.t", "--format", "delta")
    sequence = shell.good("event", "list", "--limit", "2", "-q").out.split()
    assert sequence == ["1", "2"]
    (event,) = shell.good("event", "list", "--after", "1", "--limit", "1", "-o", "json").json
    assert event["id"] == "2"
    followed = shell.good("event", "follow", "--after", "0", "--limit", "2", "-o", "json")
    assert [json.loads(line)["id"] for line in followed.out.splitlines()] == ["1", "2"]
    assert shell.good("event", "follow", "--after", "0", "--limit", "1", "-o", "yaml").out.startswith("---\n")
    assert shell.good("event", "follow", "--after", "0", "--limit", "1").out.startswith("1  ")


def test_events_arrive_while_they_are_followed(cli_server: InverServer, tmp_path: Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    process = spawn(["event", "follow", "--home", str(cli_server.home), "-o", "json"], out, err)
    try:
        name = new("c")
        deadline = time.monotonic() + PATIENCE_S
        with Client(cli_server.url, cli_server.token) as client:
            # It follows from the moment at which it is ready, which it does not announce.
            while not out.read_text():
                assert time.monotonic() < deadline, err.read_text()
                assert process.poll() is None, err.read_text()
                client.create_catalog(name := new("c"))
                time.sleep(0.2)
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    assert name
    assert json.loads(out.read_text().splitlines()[0])["type"] == "io.inver.catalog.created.v1"
    assert err.read_text() == ""


def test_search(shell: Shell, schema: str) -> None:
    word = new("w")
    shell.good("table", "create", f"{schema}.{word}", "--format", "delta")
    assert shell.good("search", word, "-q").out == f"{schema}.{word}\n"
    assert shell.good("search", word, "--kind", "schema", "-o", "json").json == []


# --- the machine's side ---


def test_config(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inver.toml").write_text('[server]\nhost = "::1"\n[storage]\nsecret_key = "hidden"\n')
    monkeypatch.setenv("INVER_SERVER__PORT", "9000")
    shown = shell.good("config", "show", "--origin")
    assert ["server.host", "::1", "inver.toml"] in shown.rows
    assert ["server.port", "9000", "INVER_SERVER__PORT"] in shown.rows
    assert ["tables.hold", "7d", "default"] in shown.rows
    assert ["storage.secret_key", "***", "inver.toml"] in shown.rows
    found = shell.good("config", "show", "server", "-o", "json").json
    assert found["server.port"] == {"value": 9000, "origin": "INVER_SERVER__PORT"}
    assert set(found) == {key for key in found if key.startswith("server.")}
    assert shell.good("config", "show", "limits.depth", "-q").out == "limits.depth=64\n"
    everything = [
        shell.good("config", "show", *form).out for form in ((), ("-q",), ("-o", "yaml"), ("-o", "json"))
    ]
    assert "hidden" not in "".join(everything)
    shell.refused(3, "config", "show", "nothing")
    (tmp_path / "inver.toml").write_text("[server]\nprot = 1\n")
    assert "to fix: did you mean server.port?" in shell.refused(1, "config", "show")


def test_doctor(shell: Shell) -> None:
    shown = shell.good("doctor")
    assert ["storage", "ok"] in [row[:2] for row in shown.rows]
    assert shell.good("doctor", "-o", "json").json["healthy"] is True
    assert shell.good("doctor", "-q").out == ""
    again = shell("doctor", "--retry", "-o", "json")
    assert (again.code, again.json["healthy"]) == (0, True)
    assert again.err == "follow-up work that is tried again: 0\n"


def test_doctor_finds_what_is_broken(tmp_path: Path) -> None:
    with running_inver(tmp_path / "home") as server:
        warehouse = server.home / "warehouse"
        warehouse.rmdir()
        warehouse.write_text("a file where a folder belongs")
        done = run_inver("doctor", "-o", "json", "--home", str(server.home))
    found = json.loads(done.stdout)
    assert (done.returncode, found["healthy"]) == (1, False)
    (failed,) = [check for check in found["checks"] if check["status"] == "failed"]
    assert failed["name"] == "storage"
    assert failed["fix"]


def test_completion_in_bash(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / "inver.bash"
    script.write_text(shell.good("completion", "bash").out)

    def complete(*words: str) -> set[str]:
        line = " ".join(f"'{word}'" for word in ("inver", *words))
        asked = (
            f'source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _inver; echo "${{COMPREPLY[@]}}"'
        )
        done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True)
        assert done.stderr == ""
        return set(done.stdout.split())

    assert {"serve", "catalog", "doctor"} <= complete("")
    assert complete("cat") == {"catalog"}
    assert {"list", "show", "create", "alter", "delete"} <= complete("catalog", "")
    assert complete("table", "create", "main.s.t", "--form") == {"--format"}
    assert complete("table", "create", "main.s.t", "--format", "") == {"delta", "iceberg", "lance"}
    assert complete("catalog", "list", "-o", "y") == {"yaml"}
    assert complete("completion", "z") == {"zsh"}
    assert complete("principal", "secret", "r") == {"revoke"}


@pytest.mark.parametrize("name", ["zsh", "fish"])
def test_completion_in_other_shells(shell: Shell, name: str) -> None:
    script = shell.good("completion", name).out
    for word in ("catalog", "undrop", "yaml", "--format" if name == "zsh" else "-l format"):
        assert word in script
