"""Unity Catalog's own Python client: makes calls and returns what they answered.

In: `url`, `token` and `calls`, each `[api class, method, arguments]`; an argument that is a list
`[model class, fields]` becomes that model.
Out: for each call its answer as a dictionary, or `{"status": ..., "error_code": ...}`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import unitycatalog.client as uc  # type: ignore[import-not-found]
from unitycatalog.client.exceptions import ApiException  # type: ignore[import-not-found]


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
        answers = [await call(api, *each) for each in given["calls"]]
    print(json.dumps(answers, default=str))


asyncio.run(main())
