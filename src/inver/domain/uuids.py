"""UUIDs as text: the form in which ids and idempotency keys travel."""

from __future__ import annotations

import re

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


def is_uuid(text: str) -> bool:
    """Any version, in the canonical form of 36 characters."""
    return _UUID.fullmatch(text) is not None
