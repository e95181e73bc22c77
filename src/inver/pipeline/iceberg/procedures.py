"""Iceberg's own procedures on one table, through a catalog that is configured for one run.

Every request of that catalog carries the run, so the server knows its commits as those of care.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from inver.domain.locations import Location
from inver.errors import Broken, Conflict, Refused
from inver.pipeline.iceberg.metadata import MOUNT
from inver.pipeline.places import Place
from inver.pipeline.work import Work

CATALOG = "org.apache.iceberg.spark.SparkCatalog"
SHUFFLES = "spark.sql.shuffle.partitions"
FILES_OF_A_TASK = 5_000

# Writers were first: the files that the rewrite started from are not those of the table any more.
_OVERTAKEN = re.compile(
    r"CommitFailedException|Missing required files to delete|found new .*delete for replaced data file"
    r"|Requirement failed|Deleted manifest .* could not be found|Found concurrently added DV"
    r"|Cannot commit, missing data files|Cannot expire .* Still referenced by refs"
    r"|Cannot commit rewrite because of|INCOMPATIBLE_TABLE_CHANGE_AFTER_ANALYSIS"
)
CURRENT = (("files", "file_path"), ("manifests", "path"))
ALL = (("all_files", "file_path"), ("all_manifests", "path"), ("snapshots", "manifest_list"))
"""What names files: of the table as it is, and as it was at any snapshot."""
_CAUSE = re.compile(r"^(?:Caused by: )?(?:[a-z][\w.]*\.)?([A-Z]\w*(?:Exception|Error)): (.+)$", re.MULTILINE)


class ProcedureFailed(Exception):
    """Iceberg gave up for a reason that is not a race."""


class Procedures:
    """`table` is the table's name for Spark, in backticks."""

    def __init__(self, spark: Any, catalog: str, path: tuple[str, ...]) -> None:
        self._spark = spark
        self._catalog = catalog
        self._path = ".".join(map(_quoted, path))
        self.table = f"{_quoted(catalog)}.{self._path}"

    def call(self, procedure: str, **arguments: Any) -> list[dict[str, Any]]:
        """The rows that it answers. Conflict if writers were first."""
        given = {"table": self._path, **arguments}
        words = ", ".join(f"{name} => {_literal(value)}" for name, value in given.items())
        return self.rows(f"CALL {_quoted(self._catalog)}.system.{procedure}({words})")

    def rows(self, statement: str) -> list[dict[str, Any]]:
        try:
            return [row.asDict() for row in self._spark.sql(statement).collect()]
        except Exception as error:
            raise _told(error) from error

    def require_own(self, location: str, names: Sequence[tuple[str, str]]) -> None:
        """Refused unless every file that the table names lies below it.

        Whoever commits to a table may name any file in it, and what works for them here has the keys to
        the files of everybody.
        """
        prefixes = [_literal(prefix) for prefix in spellings(location)]
        named = " UNION ALL ".join(
            f"SELECT {column} AS path FROM {self.table}.{view}" for view, column in names
        )
        outside = " AND ".join(f"NOT startswith(path, {prefix})" for prefix in prefixes)
        upwards = "path LIKE '%/../%' OR path LIKE '%/./%'"
        found = self.rows(f"SELECT path FROM ({named}) WHERE ({outside}) OR {upwards} LIMIT 1")
        if found:
            raise Refused(f"the table names a file outside of its location: {found[0]['path']}")

    def listed(self, files: list[tuple[str, Any]], view: str) -> None:
        """Make a view of files and when they were last changed."""
        schema = "file_path string, last_modified timestamp"
        self._spark.createDataFrame(files, schema).createOrReplaceTempView(view)

    def forget(self, view: str) -> None:
        self._spark.catalog.dropTempView(view)


@contextmanager
def procedures(work: Work, files: int | None = None) -> Iterator[Procedures]:
    """`files` is about how many names are compared, where that is known."""
    ticket = work.ticket
    catalog, *path = ticket.name
    name = "care_" + re.sub(r"\W", "_", ticket.run_id)
    settings = {
        "": CATALOG,
        ".type": "rest",
        ".uri": f"{work.client.url}{MOUNT}",
        ".warehouse": catalog,
        # A catalog that remembers tables does not see what writers have done meanwhile.
        ".cache-enabled": "false",
        # What care reads says nothing about who reads the table.
        ".rest-metrics-reporting-enabled": "false",
        ".header.Inver-Care": ticket.run_id,
        **({} if work.client.token is None else {".token": work.client.token}),
        **_storage(work.place),
    }
    with _session_of_its_own(work.spark()) as spark:
        if files is not None:
            # Iceberg joins lists of names in as many tasks as this says, however short they are.
            most = int(spark.conf.get(SHUFFLES))
            spark.conf.set(SHUFFLES, str(min(most, 2 + files // FILES_OF_A_TASK)))
        for key, value in settings.items():
            spark.conf.set(f"spark.sql.catalog.{name}{key}", value)
        yield Procedures(spark, name, tuple(path))


@contextmanager
def _session_of_its_own(spark: Any) -> Iterator[Any]:
    """A session never forgets a catalog, nor the token in its settings, so each run has one."""
    if hasattr(spark, "newSession"):
        yield spark.newSession()
        return
    # Over Connect. To stop it would stop more than this session where the server is one of our own.
    session = spark.cloneSession()
    try:
        yield session
    finally:
        session.client.release_session()
        session.client.close()


def spellings(location: str) -> list[str]:
    """How clients may begin the name of a file below a location."""
    place = Location.parse(location)
    if place.is_local:
        return [f"{start}/{place.key}/" for start in ("file://", "file:", "")]
    if place.scheme == "s3":
        return [f"{scheme}://{place.authority}/{place.key}/" for scheme in ("s3", "s3a", "s3n")]
    return [f"{place.text}/", place.prefix]


def _storage(place: Place) -> dict[str, str]:
    """The worker's own keys; without them Iceberg asks the provider's chain."""
    given = place.options
    if Location.parse(place.location).scheme != "s3":
        return {}
    keys = {
        ".s3.endpoint": given.endpoint,
        ".client.region": given.region,
        ".s3.path-style-access": "true" if given.path_style else "false",
        ".s3.access-key-id": given.access_key,
        ".s3.secret-access-key": given.secret_key and given.secret_key.reveal(),
        ".s3.session-token": given.session_token and given.session_token.reveal(),
    }
    return {key: value for key, value in keys.items() if value}


def _told(error: Exception) -> Exception:
    text = str(error)
    if CATALOG in text and ("Cannot find catalog plugin class" in text or "ClassNotFound" in text):
        return Broken(
            "Spark has no Iceberg runtime",
            fix="`inver spark jars` fetches it; a Connect server takes it when it is started",
        )
    if _OVERTAKEN.search(text):
        return Conflict("writers changed the table while it was rewritten")
    causes = _CAUSE.findall(text)
    kind, reason = causes[-1] if causes else (type(error).__name__, text.partition("\n")[0])
    return ProcedureFailed(f"{kind}: {reason}")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}+00:00'"
    if isinstance(value, Mapping):
        return f"map({', '.join(_literal(str(each)) for pair in value.items() for each in pair)})"
    if isinstance(value, list | tuple):
        # Numbers of snapshots are longs, also the small ones.
        return f"array({', '.join(f'{each}L' for each in value)})"
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"
