"""Keys to one folder of a bucket: a role of the administrator's, taken on under a policy of its own."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import re
from datetime import datetime
from typing import Any
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree

from inver.clock import Clock
from inver.domain.locations import Location
from inver.errors import Broken, Unavailable
from inver.ports import StorageAccess, StorageCredential
from inver.secrets import Secret
from inver.storage.options import StorageOptions
from inver.storage.signing import Dialect
from inver.storage.sigv4 import SigV4

STS = Dialect("AWS4", "X-Amz-", "sts", "aws4_request")
_TIMEOUT_S = 10
_MAX_ANSWER = 65_536
_FORM = "application/x-www-form-urlencoded; charset=utf-8"
_WILD = re.compile(r"[*?$]")
_READING = ("s3:GetObject",)
_WRITING = ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts")


class Role:
    """Answers are not remembered here."""

    def __init__(self, clock: Clock, options: StorageOptions, role: str) -> None:
        assert options.access_key is not None
        assert options.secret_key is not None
        assert options.region is not None
        self._role = role
        self._region = options.region
        endpoint = options.sts_endpoint or f"https://sts.{options.region}.amazonaws.com"
        self._url = endpoint.rstrip("/") + "/"
        self._signer = SigV4(
            clock,
            options.access_key,
            options.secret_key,
            options.session_token,
            region=options.region,
            dialect=STS,
        )

    async def take_on(self, location: Location, access: StorageAccess, lifetime_s: int) -> StorageCredential:
        asked = {
            "Action": "AssumeRole",
            "Version": "2011-06-15",
            "RoleArn": self._role,
            "RoleSessionName": "inver",
            "DurationSeconds": str(lifetime_s),
            "Policy": session_policy(location, access, partition=self._role.split(":")[1]),
        }
        body = urlencode(asked).encode()
        told = {"content-type": _FORM, "x-amz-content-sha256": hashlib.sha256(body).hexdigest()}
        headers = self._signer.sign("POST", self._url, self._region, told)
        status, data = await asyncio.to_thread(_post, self._url, body, headers)
        if status != 200:
            raise _refused(status, data)
        return _credential(data)


def session_policy(location: Location, access: StorageAccess, *, partition: str = "aws") -> str:
    """Everything below the folder, and listing what is below it; a sibling with the same beginning is not."""
    bucket = f"arn:{partition}:s3:::{_literal(location.authority)}"
    below = f"{_literal(location.key)}/*"
    objects = _READING if access is StorageAccess.READ else (*_READING, *_WRITING)
    statements: list[dict[str, Any]] = [
        {"Effect": "Allow", "Action": list(objects), "Resource": f"{bucket}/{below}"},
        {
            "Effect": "Allow",
            "Action": ["s3:ListBucket"],
            "Resource": bucket,
            "Condition": {"StringLike": {"s3:prefix": [below]}},
        },
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))


def _literal(text: str) -> str:
    """What a policy takes for itself, and for nothing else."""
    return _WILD.sub(lambda found: f"${{{found[0]}}}", text)


def _post(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    made = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = made(parts.netloc, timeout=_TIMEOUT_S)
    try:
        connection.request("POST", parts.path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(_MAX_ANSWER)
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"the token service does not answer: {type(error).__name__}") from error
    finally:
        connection.close()


def _refused(status: int, data: bytes) -> Broken | Unavailable:
    try:
        code = ElementTree.fromstring(data).findtext(".//{*}Code") or str(status)
    except ElementTree.ParseError:
        code = str(status)
    if status >= 500 or status == 429 or code == "Throttling":
        return Unavailable(f"the token service fails: {code}")
    return Broken(f"the role of storage.sts_role cannot be taken on: {code}")


def _credential(data: bytes) -> StorageCredential:
    try:
        found = ElementTree.fromstring(data).find(".//{*}Credentials")
        told = {} if found is None else {each.tag.rpartition("}")[2]: each.text or "" for each in found}
        ends = datetime.fromisoformat(told["Expiration"])
        return StorageCredential(
            expires_at=int(ends.timestamp() * 1000),
            access_key_id=told["AccessKeyId"],
            secret_access_key=Secret(told["SecretAccessKey"]),
            session_token=Secret(told["SessionToken"]),
        )
    except (ElementTree.ParseError, KeyError, ValueError):
        raise Unavailable("the token service does not answer as it should") from None
