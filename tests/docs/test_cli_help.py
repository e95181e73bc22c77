"""The help of every command: it is there, it has examples, and every example does what it says."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inver.cli.main import main, parser
from inver.cli.tree import Command, tree
from inver.client import Client, securable
from tests.fixtures.server import InverServer, migrate, running_inver
from tests.fixtures.waiting import PATIENCE_S, eventually

TOP = tree(parser())
COMMANDS = list(TOP.walk())
LEAVES = [command for command in COMMANDS if not command.children]
# Commands that run or prepare a server; all others talk to one.
LOCAL = {"serve", "migrate", "demo"}
NOUNS = [command for command in TOP.children if command.path[0] not in LOCAL]
SHELL = re.compile(r"[|$<>]|^[A-Z_]+=")
DATABASE = "postgresql://inver@db/inver"


def name(command: Command) -> str:
    return "-".join(command.path) or "inver"


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Nothing of this machine's own settings, and `inver` on the path."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("INVER_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {**clean, "PATH": path, "XDG_CONFIG_HOME": str(folder / "config"), **more}


@pytest.mark.parametrize("command", COMMANDS, ids=name)
def test_help(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.path, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: inver {' '.join(command.path)}".rstrip())
    assert "examples:\n  " in shown


@pytest.mark.parametrize("command", COMMANDS, ids=name)
def test_every_command_and_option_is_explained(command: Command) -> None:
    assert command.examples
    assert command.help or not command.path
    assert all(action.help for action in (*command.options, *command.positionals))
    own = " ".join(["inver", *command.path])
    assert all(own in example for example in command.examples if command.path)


@pytest.mark.parametrize("command", LEAVES, ids=name)
def test_every_command_can_show_where_an_error_came_from(command: Command) -> None:
    assert "--debug" in {flag for option in command.options for flag in option.option_strings}


# --- examples ---


def populate(server: InverServer, folder: Path) -> None:
    """The little world of the examples."""
    with Client(server.url, server.token) as client:
        client.create_catalog("main")
        client.create_schema("main.sales")
        client.create_table("main.sales.orders", "delta", columns=[{"name": "id", "type": "long"}])
        for version in (1, 2):
            commit = {"op": "commit", "table": {"name": ["main", "sales", "orders"]}, "version": version}
            client.transact([{**commit, "token": f"load-{version}", "operation": "append"}])
        client.create_principal("ana")
        client.create_principal("etl", "service")
        client.create_principal("analysts", "group")
        client.add_member("analysts", "ana")
        client.grant("analysts", ["BROWSE"], securable("main"))
        client.create_recipient("acme")
    (folder / "lake").mkdir()
    operation = '{"op": "create-table", "name": ["main", "sales", "imports"], "format": "LANCE"}'
    (folder / "changes.json").write_text(f'{{"operations": [{operation}]}}')


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a server on its `.inver`, as the one who tries the examples has it."""
    arguments = ["--external-root", str(tmp_path / "lake")]
    with running_inver(tmp_path / ".inver", arguments=arguments, env=environment(tmp_path)) as server:
        populate(server, tmp_path)
        monkeypatch.chdir(tmp_path)
        for key in [key for key in os.environ if key.startswith("INVER_")]:
            monkeypatch.delenv(key)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        yield tmp_path


def run_example(line: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    if SHELL.search(line):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line], env=environment(folder), capture_output=True, timeout=60
        )
        assert done.returncode == 0, f"{line}\n{done.stderr.decode()}"
        return
    words = shlex.split(line, comments=True)
    assert words[0] == "inver"
    code = main(words[1:])
    shown = capfd.readouterr()
    assert code == 0, f"{line}\n{shown.err}"
    assert shown.out, line


@pytest.mark.parametrize("noun", NOUNS, ids=name)
def test_examples(noun: Command, world: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One after the other, in the order of the help: what one makes the next may use."""
    for command in noun.walk():
        for line in command.examples:
            run_example(line, world, capfd)


def test_examples_of_inver_itself(world: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for line in TOP.examples:
        run_example(line, world, capfd)


def examples_of(noun: str) -> list[str]:
    return next(command for command in TOP.children if command.path == (noun,)).examples


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=pytest.mark.postgres) if DATABASE in line else line
        for line in examples_of("serve")
    ],
)
def test_examples_of_serve(line: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if DATABASE in line:
        url = request.getfixturevalue("postgres_url")
        migrate(url)
        line = line.replace(DATABASE, url)
    home = tmp_path / ("data" if "--home data" in line else ".inver")
    ports = {"INVER_SERVER__PORT": "0", "INVER_SERVER__MANAGEMENT_PORT": "0"}
    words = shlex.split(line, comments=True)
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            env=environment(tmp_path, **ports),
            stdout=out,
            stderr=out,
        )
    try:
        written = [home / "server.json", *([tmp_path / "ready.json"] if "--ready-file" in line else [])]
        eventually(lambda: all(path.exists() for path in written) or process.poll() is not None)
        assert process.poll() is None, (tmp_path / "out").read_text()
        if "--ready-file" in line:
            assert (tmp_path / "ready.json").read_bytes() == (home / "server.json").read_bytes()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert not (home / "server.json").exists()


@pytest.mark.postgres
def test_examples_of_migrate(postgres_url: str, tmp_path: Path) -> None:
    for line in examples_of("migrate"):
        words = shlex.split(line.replace(DATABASE, postgres_url), comments=True)
        done = subprocess.run(
            [sys.executable, "-m", *words],
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert "schema version" in done.stdout


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_examples_of_demo(tmp_path: Path) -> None:
    (line,) = examples_of("demo")
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(line)],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "one transaction moved three tables of three formats" in done.stdout
    assert "orders stayed at version 1" in done.stdout
    [first] = re.findall(r"winner +writer ([AB]) has version 1 ", done.stdout)
    [other] = re.findall(r"lost +writer ([AB]) asked for version 1 too: 409 ALREADY_EXISTS", done.stdout)
    assert {first, other} == {"A", "B"}
    assert f"writer {other} has version 2 " in done.stdout
    assert "the server put versions 1 and 2 into the table's own log" in done.stdout
    assert re.search(r"compact +done in .*: files 200 -> 1", done.stdout)
    assert list(tmp_path.iterdir()) == []
