"""URLs that let their holder read one object for a while, signed here without asking anybody.

Version 4 of Amazon's and of Google's signatures is one algorithm in two spellings; Azure has its own.
What goes into every URL of an answer is put together once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote

import msgspec

from inver.domain.locations import Location
from inver.ports import SignUrls
from inver.secrets import Secret
from inver.storage.connect import azure_account
from inver.storage.options import StorageOptions

UNSIGNED = "UNSIGNED-PAYLOAD"
SAS_VERSION = "2023-11-03"
_EARLIER_S = 900
"""The clock of this server may be ahead of Azure's, which takes no URL before its time."""
_ODD = re.compile(r"[^A-Za-z0-9_.~/-]")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class Dialect(msgspec.Struct, frozen=True):
    """How a cloud spells version 4."""

    name: str
    prefix: str
    service: str
    end: str


AMAZON = Dialect("AWS4", "X-Amz-", "s3", "aws4_request")
GOOGLE = Dialect("GOOG4", "X-Goog-", "storage", "goog4_request")


class Keys(msgspec.Struct, frozen=True):
    id: str
    secret: Secret
    token: Secret | None = None


def url_signer(root: Location, options: StorageOptions, now_ms: int, expires_in_s: int) -> SignUrls | None:
    """For paths below `root`; None where something that goes into a signature is not configured."""
    if root.scheme == "s3" and options.access_key and options.secret_key and options.region:
        keys = Keys(options.access_key, options.secret_key, options.session_token)
        base = _s3_base(root.authority, options.region, options)
        return v4_urls(AMAZON, keys, options.region, _folder(base, root.key), now_ms, expires_in_s)
    if root.scheme == "gs" and options.gcs_hmac_id and options.gcs_hmac_secret:
        keys = Keys(options.gcs_hmac_id, options.gcs_hmac_secret)
        base = f"{_endpoint(options, 'https://storage.googleapis.com')}/{root.authority}"
        return v4_urls(GOOGLE, keys, "auto", _folder(base, root.key), now_ms, expires_in_s)
    if root.scheme == "abfss" and options.azure_key:
        container, _, host = root.authority.partition("@")
        account = azure_account(host, options)
        base = f"{_endpoint(options, f'https://{account}.blob.core.windows.net')}/{container}"
        folder = f"{container}/{root.key}/" if root.key else f"{container}/"
        moments = sas_moments(now_ms, expires_in_s)
        return sas_urls(account, options.azure_key, _folder(base, root.key), folder, *moments)
    return None


def v4_urls(
    dialect: Dialect, keys: Keys, region: str, folder: str, now_ms: int, expires_in_s: int
) -> SignUrls:
    """`folder` is the URL of what all paths lie in."""
    moment = v4_moment(now_ms)
    algorithm = f"{dialect.name}-HMAC-SHA256"
    scope = v4_scope(dialect, moment, region)
    fields = {
        "Algorithm": algorithm,
        "Credential": f"{keys.id}/{scope}",
        "Date": moment,
        "Expires": str(expires_in_s),
        "SignedHeaders": "host",
    }
    if keys.token is not None:
        fields["Security-Token"] = keys.token.reveal()
    query = "&".join(f"{dialect.prefix}{name}={quote(fields[name], safe='')}" for name in sorted(fields))
    host, _, place = folder.partition("://")[2].partition("/")
    head, tail = f"GET\n/{place}", f"\n{query}\nhost:{host}\n\nhost\n{UNSIGNED}"
    begun = hmac.new(
        v4_key(dialect, keys.secret, moment[:8], region),
        f"{algorithm}\n{moment}\n{scope}\n".encode(),
        "sha256",
    )
    end = f"?{query}&{dialect.prefix}Signature="

    def sign(paths: Sequence[str]) -> list[str]:
        urls = []
        for path in paths:
            key = encoded(path)
            signature = begun.copy()
            signature.update(hashlib.sha256(f"{head}{key}{tail}".encode()).hexdigest().encode())
            urls.append(f"{folder}{key}{end}{signature.hexdigest()}")
        return urls

    return sign


def v4_moment(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")


def v4_scope(dialect: Dialect, moment: str, region: str) -> str:
    return f"{moment[:8]}/{region}/{dialect.service}/{dialect.end}"


@lru_cache(16)
def v4_key(dialect: Dialect, secret: Secret, day: str, region: str) -> bytes:
    """What signs for one day."""
    key = f"{dialect.name}{secret.reveal()}".encode()
    for part in (day, region, dialect.service, dialect.end):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def sas_urls(account: str, key: Secret, folder: str, place: str, start: str, end: str) -> SignUrls:
    """`folder` is the URL of what all paths lie in, `place` its container and path, not encoded."""
    head, tail = _sas_text("r", start, end, f"/blob/{account}/{place}", "b")
    begun = hmac.new(base64.b64decode(key.reveal()), head.encode(), "sha256")
    query = _sas_query("r", start, end, "b")

    def sign(paths: Sequence[str]) -> list[str]:
        urls = []
        for path in paths:
            signature = begun.copy()
            signature.update(f"{path}{tail}".encode())
            urls.append(f"{folder}{encoded(path)}?{query}&sig={_sas_signature(signature)}")
        return urls

    return sign


def directory_sas(
    account: str, key: Secret, container: str, path: str, permissions: str, start: str, end: str
) -> str:
    """For everything below a folder of an account with a hierarchical namespace."""
    head, tail = _sas_text(permissions, start, end, f"/blob/{account}/{container}/{path}", "d")
    signature = hmac.new(base64.b64decode(key.reveal()), (head + tail).encode(), "sha256")
    query = _sas_query(permissions, start, end, "d")
    return f"{query}&sdd={path.count('/') + 1}&sig={_sas_signature(signature)}"


def sas_moments(now_ms: int, expires_in_s: int) -> tuple[str, str]:
    now_s = now_ms // 1000
    start, end = (
        datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for at in (now_s - _EARLIER_S, now_s + expires_in_s)
    )
    return start, end


def _sas_text(permissions: str, start: str, end: str, resource: str, kind: str) -> tuple[str, str]:
    """What is signed, up to the end of the resource's name and from there on.

    Empty are the identifier, the addresses and the protocol that the signature could be bound to, then
    snapshot, encryption scope, and five headers of the answer.
    """
    return f"{permissions}\n{start}\n{end}\n{resource}", f"\n\n\n\n{SAS_VERSION}\n{kind}\n\n\n\n\n\n\n"


def _sas_query(permissions: str, start: str, end: str, kind: str) -> str:
    return f"sv={SAS_VERSION}&st={quote(start)}&se={quote(end)}&sr={kind}&sp={permissions}"


def _sas_signature(signature: hmac.HMAC) -> str:
    text = base64.b64encode(signature.digest()).decode()
    return text.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")


def encoded(path: str) -> str:
    """A path as every one of them signs it: letters, digits and `-_.~/` stay."""
    return _ODD.sub(_escape, path)


def _escape(match: re.Match[str]) -> str:
    return _escaped(match[0])


@lru_cache(1024)
def _escaped(character: str) -> str:
    return quote(character, safe="")


def _folder(base: str, key: str) -> str:
    return f"{base}/{encoded(key)}/" if key else f"{base}/"


def _s3_base(bucket: str, region: str, options: StorageOptions) -> str:
    endpoint = _endpoint(options, f"https://s3.{region}.amazonaws.com")
    return f"{endpoint}/{bucket}" if options.path_style else endpoint.replace("://", f"://{bucket}.", 1)


def _endpoint(options: StorageOptions, default: str) -> str:
    """As clients will write it into the header that is signed: in lower case, without a port that goes
    without saying."""
    if options.endpoint is None:
        return default
    scheme, _, rest = options.endpoint.rstrip("/").partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.lower().removesuffix(_DEFAULT_PORTS[scheme])}{slash}{path}"
