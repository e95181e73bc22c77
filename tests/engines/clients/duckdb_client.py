"""DuckDB with its extensions, driven by lines: the first says as JSON what to attach, if anything.

Each further line is JSON: `{"sql": ...}` answers its rows. With `repeat` it is run so many times,
`{i}` being the number of the round, and answers how often it was sent: a round that is refused as a
conflict is sent again, by a session that has read the table anew.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import duckdb

MAX_SENT = 1000


class Session:
    def __init__(self, given: dict[str, str]) -> None:
        self._given = given
        self._connection = connect(given)

    def run(self, command: dict[str, Any]) -> Any:
        if "repeat" in command:
            return self.repeat(command["sql"], command["repeat"])
        return self._connection.execute(command["sql"]).fetchall()

    def repeat(self, statement: str, rounds: int) -> int:
        sent = done = 0
        while done < rounds and sent < MAX_SENT:
            sent += 1
            try:
                self._connection.execute(statement.replace("{i}", str(done)))
                done += 1
            except duckdb.Error as error:
                if "409" not in str(error):
                    raise
                # An attached catalog keeps the version at which it has read a table.
                self._connection = connect(self._given)
        return sent


def connect(given: dict[str, str]) -> Any:
    """Extensions come as wheels; nothing is fetched."""
    connection = duckdb.connect()
    connection.execute("SET autoinstall_known_extensions = false; SET autoload_known_extensions = false")
    packages = Path(duckdb.__file__).parent.parent
    for name in ("httpfs", "delta", "unity_catalog"):
        folder = packages / f"duckdb_extension_{name}" / "extensions" / f"v{duckdb.__version__}"
        connection.execute(f"LOAD '{folder / name}.duckdb_extension'")
    if not given:
        return connection
    connection.execute(
        f"CREATE SECRET (TYPE unity_catalog, TOKEN '{given['token']}', ENDPOINT '{given['url']}')"
    )
    connection.execute(
        f"ATTACH '{given['catalog']}' AS {given['catalog']} "
        f"(TYPE unity_catalog, DEFAULT_SCHEMA '{given['schema']}')"
    )
    return connection


def main() -> None:
    session = Session(json.loads(sys.stdin.readline()))
    print(json.dumps({"answer": duckdb.__version__}), flush=True)
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"answer": session.run(json.loads(line))}
        except duckdb.Error as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer, default=str), flush=True)


main()
