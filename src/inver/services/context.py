"""Who asks, and under which key."""

from __future__ import annotations

import msgspec

from inver.domain.principals import Principal


class Caller(msgspec.Struct, frozen=True):
    principal: Principal
    request_id: str = ""
    key: str | None = None
