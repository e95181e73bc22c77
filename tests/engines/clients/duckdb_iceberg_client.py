"""DuckDB with its extension for Iceberg, driven by lines: the first says as JSON what to attach as `lake`.

Each further line is JSON: `{"sql": ...}` answers its rows. With `repeat` it is run so many times,
`{i}` being the number of the round, and answers how often it was sent: a round that is refused as a
conflict is sent again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import duckdb

MAX_SENT = 1000


def run(connection: Any, command: dict[str, Any]) -> Any:
    if "repeat" in command:
        return repeat(connection, command["sql"], command["repeat"])
    return connection.execute(command["sql"]).fetchall()


def repeat(connection: Any, statement: str, rounds: int) -> int:
    sent = done = 0
    while done < rounds and sent < MAX_SENT:
        sent += 1
        try:
            connection.execute(statement.replace("{i}", str(done)))
            done += 1
        except duckdb.Error as error:
            if "409" not in str(error):
                raise
    return sent


def connect(given: dict[str, str]) -> Any:
    """Extensions come as wheels; nothing is fetched."""
    connection = duckdb.connect()
    connection.execute("SET autoinstall_known_extensions = false; SET autoload_known_extensions = false")
    packages = Path(duckdb.__file__).parent.parent
    for name in ("httpfs", "avro", "iceberg"):
        folder = packages / f"duckdb_extension_{name}" / "extensions" / f"v{duckdb.__version__}"
        connection.execute(f"LOAD '{folder / name}.duckdb_extension'")
    who = f"TOKEN '{given['token']}'" if "token" in given else "AUTHORIZATION_TYPE 'none'"
    connection.execute(
        f"ATTACH '{given.get('warehouse', '')}' AS lake (TYPE iceberg, ENDPOINT '{given['uri']}', {who})"
    )
    return connection


def main() -> None:
    connection = connect(json.loads(sys.stdin.readline()))
    print(json.dumps({"answer": duckdb.__version__}), flush=True)
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"answer": run(connection, json.loads(line))}
        except duckdb.Error as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer, default=str), flush=True)


main()
