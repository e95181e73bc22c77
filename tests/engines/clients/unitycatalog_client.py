"""Unity Catalog's own Python client, driven by lines: the first has its `url` and `token` as JSON.

Each further line is `[api class, method, arguments]`; an argument that is a list `[model class,
fields]` becomes that model. It is answered by what the call returned, as a dictionary, or by
`{"status": ..., "error_code": ...}`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import unitycatalog.client as uc
from unitycatalog.client.exceptions import ApiException


def argument(value: Any) -> Any:
    if isinstance(value, list):
        model, fields = value
        return getattr(uc, model).from_dict(fields)
    return value


async def call(api: Any, kind: str, method: str, given: dict[str, Any]) -> Any:
    arguments = {name: argument(value) for name, value in given.items()}
    try:
        answer = await getattr(getattr(uc, kind)(api), method)(**arguments)
    except ApiException as error:
        body = json.loads(error.body)
        return {"status": error.status, "error_code": body["error_code"]}
    return answer.to_dict() if hasattr(answer, "to_dict") else answer


async def main() -> None:
    given = json.loads(sys.stdin.readline())
    async with uc.ApiClient(uc.Configuration(host=given["url"])) as api:
        # The client ignores the token of its own configuration.
        api.set_default_header("Authorization", f"Bearer {given['token']}")
        for line in sys.stdin:
            answer = await call(api, *json.loads(line))
            print(json.dumps({"answer": answer}, default=str), flush=True)


asyncio.run(main())
