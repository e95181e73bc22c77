"""One way to a Spark session: in this process, on a cluster's master, or over Spark Connect.

Jobs use the DataFrame API alone, so the same function runs on all of them. Nothing of Spark is imported
before a session is asked for.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from inver.pipeline.java import java_home

LOOPBACK = "127.0.0.1"
# Spark runs a task of `local[N]` once; one that failed for a passing reason deserves what a cluster gives it.
_ATTEMPTS = 3
_LOCAL = re.compile(r"local(?:\[(\*|\d+)\])?")
_ON_LOOPBACK = re.compile(r"spark://(127\.|localhost[:,])")
_SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

_SQL = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
}
_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.catalogImplementation": "in-memory",
}


def open_session(
    master: str = "local[*]",
    *,
    remote: str | None = None,
    name: str = "inver",
    conf: Mapping[str, str] | None = None,
    jars: Sequence[Path] = (),
    short_lived: bool = False,
) -> Any:
    """A session on a master (`local[*]`, `spark://…`, `yarn`, `k8s://…`), or on a Connect server.

    `remote` is the address of that server (`sc://…`), or `local[N]` for one of our own. `short_lived`
    halves the start of the Java machine, at the price of slower long jobs.
    """
    if remote is not None and remote.startswith("sc://"):
        return _connected(remote, name, conf or {})
    os.environ["JAVA_HOME"] = str(java_home())
    # Otherwise the workers are whatever `python3` is on the PATH, and lack our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {**_QUIET, **_SQL, **_driver(remote or master), **(conf or {})}
    if short_lived:
        options = settings.get("spark.driver.extraJavaOptions", "")
        settings["spark.driver.extraJavaOptions"] = f"{_SHORT_LIVED} {options}".strip()
    if jars:
        settings["spark.jars"] = ",".join(map(str, jars))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    builder = builder.remote(local_master(remote)) if remote else builder.master(local_master(master))
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def local_master(master: str) -> str:
    """`local[…]` with as many cores as this process may use, and with attempts."""
    found = _LOCAL.fullmatch(master)
    if found is None:
        return master
    cores = found[1] or "1"
    return f"local[{_cores() if cores == '*' else cores},{_ATTEMPTS}]"


def _connected(address: str, name: str, conf: Mapping[str, str]) -> Any:
    from pyspark.sql import SparkSession

    # Two jobs of one process must not share the state of a session.
    builder = SparkSession.builder.remote(address).appName(name)
    session = builder.create()
    for key, value in {**_SQL, **conf}.items():
        # How the server itself runs is its owner's business; a session may set the rest.
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


def _driver(master: str) -> dict[str, str]:
    """Where the executors find the driver. A machine's own name often leads nowhere."""
    if not (_LOCAL.match(master) or master.startswith("local-cluster") or _ON_LOOPBACK.match(master)):
        return {}
    return {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
