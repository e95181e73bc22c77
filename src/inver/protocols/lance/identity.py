"""Who asks. Clients say it in one of two headers, or once more in the body."""

from __future__ import annotations

import msgspec

from inver.protocols.http import Request

MOUNT = b"/lance/"


class _Identity(msgspec.Struct):
    api_key: str | None = None
    auth_token: str | None = None


class _Body(msgspec.Struct):
    identity: _Identity | None = None


_decode = msgspec.json.Decoder(_Body).decode


def presented(request: Request) -> bytes | None:
    """What is to be checked as the value of an Authorization header. A header counts more than a body."""
    given = request.header(b"authorization")
    if given is not None or not request.raw_path.startswith(MOUNT):
        return given
    key = request.header(b"x-api-key")
    if key is not None:
        return b"Bearer " + key
    if b'"identity"' not in request.body:
        return None
    try:
        identity = _decode(request.body).identity
    except (msgspec.DecodeError, RecursionError):
        return None
    secret = identity and (identity.auth_token or identity.api_key)
    return b"Bearer " + secret.encode() if secret else None
