"""Secrets that do not show themselves, and the making and hashing of tokens."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import NoReturn


class Secret:
    """A string that is read only by `reveal()`; logs, tracebacks and f-strings show a mask."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(_bytes(self._value), _bytes(other._value))

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> NoReturn:
        # A pickle holds the plain text, and it ends up in files and on other machines.
        raise TypeError("a Secret is not serialised; reveal it where it is used")


def new_token_secret() -> Secret:
    """32 random bytes as 43 URL-safe characters."""
    return Secret(secrets.token_urlsafe(32))


def hash_secret(secret: Secret | str) -> str:
    """What is stored of a token. 256 random bits need no slow hash: there is nothing to guess."""
    value = secret.reveal() if isinstance(secret, Secret) else secret
    return hashlib.sha256(_bytes(value)).hexdigest()


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")
