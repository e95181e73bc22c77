"""Requests to AWS, signed in the server's name by its Signature Version 4; those to S3 for clients that have
no keys."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from urllib.parse import quote, unquote

from inver.clock import Clock
from inver.errors import Invalid
from inver.ports import S3Target
from inver.secrets import Secret
from inver.storage.signing import AMAZON, UNSIGNED, Dialect, v4_key, v4_moment, v4_scope

_URI = re.compile(r"(https?)://([^/?#@\\\s]+)(/[^?#\s\\]*)(?:\?([^#\s]*))?", re.ASCII)
_ESCAPES = re.compile(r"(?:[A-Za-z0-9._~/!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*", re.ASCII)
_AWS = re.compile(
    r"(?:([a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?)\.)?s3(?:[.-][a-z0-9-]+)?\.amazonaws\.com", re.ASCII
)


class SigV4:
    """`endpoint` is None for AWS itself, whose hosts are known."""

    def __init__(
        self,
        clock: Clock,
        access_key: str,
        secret_key: Secret,
        session_token: Secret | None = None,
        endpoint: str | None = None,
        region: str | None = None,
        dialect: Dialect = AMAZON,
    ) -> None:
        self._clock = clock
        self._access_key = access_key
        self._secret_key = secret_key
        self._session_token = session_token
        self._endpoint = None if endpoint is None else endpoint.rstrip("/")
        self._region = region
        self._dialect = dialect

    def target(self, uri: str) -> S3Target:
        """What a URI is about, if it is one of this store; read literally, and once."""
        found = _URI.fullmatch(uri)
        if found is None or not _ESCAPES.fullmatch(found[3]):
            raise Invalid("uri is not the URL of an object", field="uri")
        scheme, host, path, query = found.groups()
        bucket = self._bucket(scheme, host)
        if bucket is None:
            bucket, _, path = path[1:].partition("/")
        else:
            path = path[1:]
        try:
            key = unquote(path, errors="strict")
            pairs = [_pair(part) for part in query.split("&")] if query else []
        except UnicodeDecodeError:
            raise Invalid("uri is not percent-encoded UTF-8", field="uri") from None
        if len({name for name, _ in pairs}) != len(pairs):
            raise Invalid("a query parameter is given twice", field="uri")
        return S3Target(unquote(bucket), key, dict(pairs))

    def sign(self, method: str, uri: str, region: str, headers: Mapping[str, str]) -> dict[str, str]:
        """All headers to send, with the signature among them. `headers` have names in lower case."""
        found = _URI.fullmatch(uri)
        assert found is not None
        _, host, path, query = found.groups()
        region = self._region or region
        moment = v4_moment(self._clock.now_ms())
        signed = {
            **headers,
            "host": host,
            "x-amz-date": moment,
            "x-amz-content-sha256": headers.get("x-amz-content-sha256", UNSIGNED),
        }
        if self._session_token is not None:
            signed["x-amz-security-token"] = self._session_token.reveal()
        names = ";".join(sorted(signed))
        canonical = "\n".join(
            (
                method,
                path,
                _canonical_query(query or ""),
                *(f"{name}:{' '.join(signed[name].split())}" for name in sorted(signed)),
                "",
                names,
                signed["x-amz-content-sha256"],
            )
        )
        scope = v4_scope(self._dialect, moment, region)
        text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = v4_key(self._dialect, self._secret_key, moment[:8], region)
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        signed["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._access_key}/{scope}, SignedHeaders={names}, "
            f"Signature={signature}"
        )
        return signed

    def _bucket(self, scheme: str, host: str) -> str | None:
        """The bucket that the host names; None when the path does. Other hosts are somebody else's."""
        if self._endpoint is None:
            found = _AWS.fullmatch(host)
            if found is not None and scheme == "https":
                return found[1]
        else:
            kind, _, ours = self._endpoint.partition("://")
            if scheme == kind and host == ours:
                return None
            if scheme == kind and host.endswith("." + ours):
                return host[: -len(ours) - 1]
        raise Invalid("uri is not one of the storage of this server", field="uri")


def _pair(part: str) -> tuple[str, str]:
    name, _, value = part.partition("=")
    return unquote(name, errors="strict"), unquote(value.replace("+", " "), errors="strict")


def _canonical_query(query: str) -> str:
    pairs = [_pair(part) for part in query.split("&")] if query else []
    return "&".join(
        sorted(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in pairs)
    )
