"""How commands show their results, how they end, and what a server leaves for them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from inver.cli.main import main
from inver.cli.output import yaml
from inver.client import Client
from tests.fixtures.cli import Shell, new
from tests.fixtures.server import COMMAND, InverServer, run_inver, running_inver

# --- forms of output ---


def test_one_value_in_three_forms(shell: Shell) -> None:
    name = new("c")
    shell.good("catalog", "create", name, "--comment", "yes", "--set", "k=a: b")
    assert shell.good("catalog", "show", name, "-o", "json").json["comment"] == "yes"
    lines = shell.good("catalog", "show", name, "-o", "yaml").out.splitlines()
    assert 'comment: "yes"' in lines
    assert "properties:" in lines
    assert '  k: "a: b"' in lines
    assert ["comment", "yes"] in shell.good("catalog", "show", name).rows


def test_nothing_in_a_result_steers_the_terminal(shell: Shell) -> None:
    name = new("c")
    comment = "a\x1b[31m\x9b0m\u202eb\r\nc"
    shell.good("catalog", "create", name, "--comment", comment)
    for form in ("table", "json", "yaml"):
        shown = shell.good("catalog", "show", name, "-o", form).out
        assert not set(shown) & set("\x1b\x9b\u202e\r")
    assert shell.good("catalog", "show", name, "-o", "json").json["comment"] == comment
    assert name in shell.good("catalog", "list").out


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1, "b": [1, "x"], "c": {}, "d": []}, "a: 1\nb:\n  - 1\n  - x\nc: {}\nd: []\n"),
        ([{"a": 1, "b": {"c": None}}, [1, [2]]], "- a: 1\n  b:\n    c: null\n- - 1\n  - - 2\n"),
        ({"true": "no", "x": "", "v": "1", "z": "a#b"}, '"true": "no"\nx: ""\nv: "1"\nz: "a#b"\n'),
        ("plain", "plain\n"),
        ([], "[]\n"),
        ("two\nlines", '"two\\nlines"\n'),
        (" led", '" led"\n'),
    ],
)
def test_yaml(value: object, expected: str) -> None:
    assert yaml(value) == expected


def test_a_terminal_gets_a_table_with_colours(cli_server: InverServer, tmp_path: Path) -> None:
    """Through a pseudo-terminal, as a person sees it."""

    def show(*options: str) -> bytes:
        ours, theirs = os.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"}
        environment.pop("NO_COLOR", None)
        command = [*COMMAND, "catalog", "list", "--home", str(cli_server.home), *options]
        with subprocess.Popen(command, stdout=theirs, env=environment) as process:
            os.close(theirs)
            shown = b""
            try:
                while piece := os.read(ours, 65536):
                    shown += piece
            except OSError:
                pass  # how a pseudo-terminal ends
            finally:
                os.close(ours)
            assert process.wait(60) == 0
        return shown

    assert b"\x1b[1m" in show()
    assert b"main" in show()
    assert b"\x1b[" not in show("--no-color")


# --- how a command ends ---


def test_usage(shell: Shell) -> None:
    for arguments in ((), ("nonsense",), ("catalog",), ("catalog", "show"), ("catalog", "list", "-o", "xml")):
        assert "usage: inver" in shell.refused(2, *arguments)
    assert "not a duration" in shell.refused(2, "token", "create", "--expires", "soon")
    assert "KEY=VALUE" in shell.refused(2, "catalog", "create", "x", "--set", "a")
    assert "whole number" in shell.refused(2, "serve", "--port", "x")


def test_conflict(shell: Shell) -> None:
    refused = shell.refused(4, "catalog", "create", "MAIN")
    assert refused.startswith("inver: catalog 'MAIN' already exists\n")
    assert "request: " in refused


def test_not_allowed(shell: Shell, user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INVER_TOKEN", shell.good("token", "create", "--principal", user, "-q").out.strip())
    assert "to fix: needed: CREATE CATALOG on metastore" in shell.refused(1, "catalog", "create", new())


def test_unreachable(shell: Shell) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        refused = shell.refused(5, "catalog", "list", "--url", f"http://127.0.0.1:{port}")
    assert refused.startswith("inver: the server gives no answer: Connection refused\n")
    assert "to fix: " in refused


def test_no_server(shell: Shell, tmp_path: Path) -> None:
    assert "start one with `inver serve`" in shell.refused(5, "catalog", "list", "--home", str(tmp_path))


def test_profiles(shell: Shell, cli_server: InverServer, tmp_path: Path) -> None:
    (tmp_path / "inver").mkdir()
    lines = ["[here]", f'url = "{cli_server.url}"', f'token_file = "{cli_server.home}/admin.token"']
    (tmp_path / "inver" / "profiles.toml").write_text("\n".join(lines))
    assert shell.good("principal", "whoami", "-q", "--profile", "here").out == "admin\n"
    assert "there is no profile 'there'" in shell.refused(3, "catalog", "list", "--profile", "there")


def test_bad_names(shell: Shell) -> None:
    assert "catalog.schema.table" in shell.refused(1, "table", "show", "main.sales")
    assert "closing" in shell.refused(1, "table", "show", "main.`x")


def test_debug_shows_where(shell: Shell) -> None:
    from inver.errors import NotFound

    with pytest.raises(NotFound):
        main(["catalog", "show", "nope", "--debug"])
    done = run_inver("catalog", "show", "nope", "--debug", "--home", str(shell.server.home))
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_output_that_nobody_reads(cli_server: InverServer) -> None:
    command = f"{' '.join(COMMAND)} event list --limit 1000 -o json --home {cli_server.home}"
    done = subprocess.run(
        ["bash", "-c", f"{command} | true; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True
    )
    assert done.stdout.strip() in ("0", "141")
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_cannot_be_written(cli_server: InverServer) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "catalog", "list", "--home", str(cli_server.home)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


# --- the server's own files ---


def test_the_running_server_says_how_it_is_reached(tmp_path: Path) -> None:
    with running_inver(tmp_path / "home") as server:
        found = json.loads((server.home / "server.json").read_bytes())
        assert found == {"url": server.url, "management_url": server.management_url, "pid": server.pid}
        server.kill()
        assert (server.home / "server.json").exists()
        server.start()
        assert json.loads((server.home / "server.json").read_bytes())["pid"] == server.pid
        assert server.stop() == 0
        assert not (server.home / "server.json").exists()


def test_authentication_is_off_only_where_nobody_else_can_come(tmp_path: Path) -> None:
    off = {"INVER_AUTH__ENABLED": "false"}
    with running_inver(tmp_path / "home", env=off) as server, Client(server.url) as nobody:
        assert nobody.whoami().name == "admin"
        assert "Authentication is off" in server.output
    done = run_inver("serve", "--host", "::", "--port", "0", env=off, cwd=tmp_path)
    assert done.returncode == 1
    assert "authentication is off, and other machines can reach ::" in done.stderr


def test_settings_from_a_file_reach_the_server(tmp_path: Path) -> None:
    config = tmp_path / "my.toml"
    config.write_text(f'[storage]\nwarehouse = "{tmp_path}/other"\n[limits]\nbody = 100\n')
    with running_inver(tmp_path / "home", arguments=["--config", str(config)]) as server:
        done = run_inver("catalog", "create", "c" * 120, "--home", str(server.home))
        assert done.returncode == 1
        assert "larger than 100 bytes" in done.stderr
    assert (tmp_path / "other").is_dir()
