"""Profile files: what a recipient gives to its client."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from inver.errors import Invalid
from inver.services.sharing.recipients import Given

MOUNT = "/delta-sharing"
_HOST = re.compile(r"[A-Za-z0-9.\-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?")


def endpoint(host: bytes | None, public_url: str | None) -> str:
    """Where recipients find us: where the operator says, or else where we were reached."""
    if public_url is not None:
        return public_url.rstrip("/") + MOUNT
    text = (host or b"localhost").decode("latin-1")
    if not _HOST.fullmatch(text):
        raise Invalid("the Host header is not valid", field="Host")
    return f"http://{text}{MOUNT}"


def activation_url(given: Given, endpoint: str) -> str | None:
    return None if given.activation is None else f"{endpoint}/activation/{given.activation.reveal()}"


def profile(given: Given, endpoint: str) -> dict[str, Any] | None:
    """Version 1 for a bearer token, since not every client takes one in version 2; version 2 for OAuth."""
    if given.token is not None:
        moment = datetime.fromtimestamp(given.expires_at / 1000, UTC)
        return {
            "shareCredentialsVersion": 1,
            "endpoint": endpoint,
            "bearerToken": given.token.reveal(),
            "expirationTime": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
    if given.client_secret is not None:
        return {
            "shareCredentialsVersion": 2,
            "type": "oauth_client_credentials",
            "endpoint": endpoint,
            "tokenEndpoint": f"{endpoint}/oauth/token",
            "clientId": given.recipient.id,
            "clientSecret": given.client_secret.reveal(),
        }
    return None
