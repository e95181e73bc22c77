"""The generated client of the namespace specification.

In: `url`, `token`, `calls`, each the name of an api, its method, its path arguments and a body.
Out: for each call its answer as JSON, or the status and body of its refusal. A body of bytes comes
as `{"rows": [first, count]}` and is sent as Arrow; an answer of bytes is read as Arrow.
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import lance_namespace_urllib3_client as client
import pyarrow


def arrow(first: int, count: int) -> bytes:
    numbers = range(first, first + count)
    flat = pyarrow.array([float(n) for n in numbers for _ in range(4)], pyarrow.float32())
    table = pyarrow.table(
        {
            "id": pyarrow.array(numbers, pyarrow.int64()),
            "vector": pyarrow.FixedSizeListArray.from_arrays(flat, 4),
        }
    )
    sink = io.BytesIO()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def shown(answer: Any) -> Any:
    if isinstance(answer, bytes | bytearray):
        return pyarrow.ipc.open_file(bytes(answer)).read_all().to_pydict()
    return answer.to_dict() if hasattr(answer, "to_dict") else answer


def main() -> None:
    given = json.loads(sys.stdin.readline())
    api_client = client.ApiClient(client.Configuration(host=given["url"] + "/lance"))
    api_client.set_default_header("Authorization", f"Bearer {given['token']}")
    answers = []
    for api, method, path, body, query in given["calls"]:
        call = getattr(getattr(client, api)(api_client), method)
        sent: list[Any] = []
        if isinstance(body, dict) and "rows" in body:
            sent = [arrow(*body["rows"])]
        elif body is not None:
            kind = "".join(part.title() for part in method.split("_")) + "Request"
            sent = [getattr(client, kind).from_dict(body)]
        try:
            answers.append(shown(call(*path, *sent, **query)))
        except client.ApiException as refused:
            answers.append({"status": refused.status, "error": json.loads(refused.body)})
    print(json.dumps(answers, default=str))


main()
