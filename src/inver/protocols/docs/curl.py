"""An operation as a command that a person can paste into a shell."""

from __future__ import annotations

import shlex
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

Json = dict[str, Any]


def command(method: str, path: str, operation: Json, parameters: list[Json], base: str) -> str:
    """`INVER_URL` and `INVER_TOKEN` are what the command line reads, too."""
    query: dict[str, str] = {}
    for parameter in parameters:
        example = str(parameter.get("example", ""))
        if parameter["in"] == "path":
            path = path.replace("{" + parameter["name"] + "}", quote(example, safe=""))
        elif parameter["in"] == "query" and parameter.get("required"):
            query[parameter["name"]] = example
    url = f"$INVER_URL{base}{path}" + (f"?{urlencode(query)}" if query else "")
    first = f'curl "{url}"' if method == "GET" else f'curl -X {method} "{url}"'
    lines = [first]
    if operation.get("security") != []:
        lines.append('-H "Authorization: Bearer $INVER_TOKEN"')
    if any(parameter["name"] == "Idempotency-Key" for parameter in parameters):
        lines.append('-H "Idempotency-Key: $(uuidgen)"')
    for content_type, media in operation.get("requestBody", {}).get("content", {}).items():
        example = media.get("example", {})
        if content_type == "application/json":
            lines.append('-H "Content-Type: application/json"')
            lines.append("-d " + shlex.quote(msgspec.json.encode(example).decode()))
        else:
            lines.extend(f"-d {shlex.quote(f'{name}={value}')}" for name, value in example.items())
    return " \\\n  ".join(lines)
