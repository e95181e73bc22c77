"""Answers that carry metadata: the document's own bytes between a few of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Literal, TypeAlias
from urllib.parse import urlencode

from inver.domain import iceberg
from inver.domain.locations import Location
from inver.errors import Invalid
from inver.ports import StorageCredential
from inver.protocols.http import Request, Response
from inver.protocols.iceberg.coding import caller, encode, namespace, page, pieces
from inver.services.credentials import Vended
from inver.services.iceberg.commits import Loaded
from inver.services.iceberg.relations import Relations

Mode: TypeAlias = Literal["all", "refs"]
VENDED = "vended-credentials"
SIGNING = "remote-signing"
PLANNING_MODE = "scan-planning-mode"
_NO_STORE = (b"Cache-Control", b"no-store")


class Keys:
    """What a client is told about reaching a table's files: settings of the storage, and keys, if any."""

    def __init__(
        self,
        location: str,
        delegation: tuple[str, ...],
        vended: Vended | None,
        storage: Mapping[str, str],
        url: str,
        signs: bool = False,
        signing: Mapping[str, str] | None = None,
    ) -> None:
        """`url` is the table's own, below the catalog's; `signs` says whether requests are signed there.

        Every request to be signed comes with the properties of `signing`.
        """
        self.config: dict[str, str] = {}
        self.credentials: list[dict[str, object]] = []
        self.signing: dict[str, object] | None = None
        self.tag = f"{','.join(delegation)};{vended.access if vended else ''}" if delegation else ""
        if Location.parse(location).scheme == "s3":
            self.config |= storage
            # Settings may change while clients remember what they were told.
            self.tag += "".join(f";{name}={value}" for name, value in storage.items())
        if vended is not None and vended.keys is not None:
            # Keys are never the same twice, so an answer that holds some is never found unchanged.
            self.tag += f";{vended.keys.expires_at}"
            given = _config_of(vended.location, vended.keys, url + "/credentials")
            self.credentials = [{"prefix": vended.location, "config": {**self.config, **given}}]
            # Older clients look for keys here.
            self.config |= given
        elif signs and SIGNING in delegation:
            self.tag += ";signed"
            self.signing = {"properties": signing or {}, "headers": {}}
            # Older clients do not know of properties, nor where to ask, and PyIceberg not even that it is to.
            signer = f"{url}/sign?{urlencode(signing)}" if signing else f"{url}/sign"
            self.config |= {
                "s3.remote-signing-enabled": "true",
                "s3.signer": "S3V4RestSigner",
                "signer.endpoint": signer,
                "s3.signer.endpoint": signer,
            }


async def listing(request: Request, relations: Relations) -> Response:
    """The names of the tables, or of the views, of a namespace."""
    asks, (catalog, path) = caller(request), namespace(request)

    async def fetch(after: str, limit: int) -> tuple[list[str], str | None]:
        return await relations.page(asks, catalog, path, after, limit)

    names, token = await page(fetch, request)
    return Response(
        200, b'{"identifiers":%b,"next-page-token":%b}' % (_identifiers(path, names), encode(token))
    )


def _identifiers(path: Sequence[str], names: Sequence[str]) -> bytes:
    """There may be many of them, and all but the names is the same."""
    text, start = encode(names), b'{"namespace":%b,"name":' % encode(path)
    if not names:
        return text
    if text.count(b",") == len(names) - 1:
        # No name has a comma, so wherever there is one, a name ends and another begins.
        return b"[%b%b}]" % (start, text[1:-1].replace(b",", b"}," + start))
    return b"[%b%b}]" % (start, (b"}," + start).join(map(encode, names)))


def delegation_of(request: Request) -> tuple[str, ...]:
    value = request.header(b"x-iceberg-access-delegation") or b""
    return tuple(sorted({each.strip() for each in value.decode("latin-1").split(",") if each.strip()}))


def mode_of(request: Request) -> Mode:
    match (request.param("snapshots") or "all").lower():
        case "all":
            return "all"
        case "refs":
            return "refs"
    raise Invalid("snapshots must be all or refs", field="snapshots")


def etag(table_id: str, version: int, mode: Mode, keys: Keys | None) -> bytes:
    """One tag for everything on which the answer depends."""
    text = f"{table_id};{version};{mode};{keys.tag if keys else ''}"
    return b'"%b"' % sha256(text.encode()).hexdigest()[:32].encode()


def unchanged(request: Request, tag: bytes) -> bool:
    for name, value in request.headers:
        if name == b"if-none-match":
            for each in value.split(b","):
                given = each.strip()
                if given == b"*" or given.removeprefix(b"W/") == tag:
                    return True
    return False


def table_answer(loaded: Loaded, keys: Keys | None, mode: Mode = "all") -> Response:
    """`keys` is None where the protocol's answer has no room for them."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if loaded.version >= 0:
        headers = ((b"ETag", etag(loaded.table_id, loaded.version, mode, keys)),)
    if keys is not None and keys.credentials:
        headers = (*headers, _NO_STORE)
    return pieces(_body(loaded, keys, mode), headers)


def view_answer(loaded: Loaded) -> Response:
    return pieces(_body(loaded, None, "all"))


def _body(loaded: Loaded, keys: Keys | None, mode: Mode) -> list[bytes]:
    place = loaded.state.head.metadata_location
    start = b'{"metadata":' if place is None else b'{"metadata-location":%b,"metadata":' % encode(place)
    end = b"}"
    if keys is not None:
        config = {**keys.config, **planning_mode(loaded.state.head.properties)}
        end = b',"config":%b,"storage-credentials":%b}' % (encode(config), encode(keys.credentials))
        if keys.signing is not None:
            end = b'%b,"remote-signing-config":%b}' % (end[:-1], encode(keys.signing))
    if loaded.document is not None and mode == "all":
        return [start, *loaded.document, end]
    return [start, *iceberg.document(loaded.state, mode), end]


def planning_mode(properties: Mapping[str, str]) -> dict[str, str]:
    """Who is to plan scans, as the properties of a table or catalog say. Without them, clients do."""
    mode = properties.get(PLANNING_MODE, "").lower()
    return {PLANNING_MODE: mode} if mode in ("client", "server") else {}


def _config_of(location: str, keys: StorageCredential, refresh: str) -> dict[str, str]:
    expires = str(keys.expires_at)
    config: dict[str, str] = {}
    if keys.access_key_id is not None and keys.secret_access_key is not None:
        config |= {
            "s3.access-key-id": keys.access_key_id,
            "s3.secret-access-key": keys.secret_access_key.reveal(),
            "s3.session-token-expires-at-ms": expires,
            "client.refresh-credentials-endpoint": refresh,
        }
        if keys.session_token is not None:
            config["s3.session-token"] = keys.session_token.reveal()
    if keys.oauth_token is not None:
        config |= {
            "gcs.oauth2.token": keys.oauth_token.reveal(),
            "gcs.oauth2.token-expires-at": expires,
            "gcs.oauth2.refresh-credentials-endpoint": refresh,
        }
    if keys.sas_token is not None:
        account = Location.parse(location).authority.partition("@")[2]
        config |= {
            f"adls.sas-token.{account}": keys.sas_token.reveal(),
            f"adls.sas-token-expires-at-ms.{account}": expires,
            "adls.refresh-credentials-endpoint": refresh,
        }
    return config
