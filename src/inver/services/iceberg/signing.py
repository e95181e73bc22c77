"""Remote signing: requests to a table's files, signed for who may send them.

What is not known to be harmless is refused: other methods and parameters, objects outside the
table's folder, listings that reach beyond it, and copies from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import unescape

import msgspec

from inver.clock import Clock
from inver.domain.grants import Action
from inver.domain.locations import Location
from inver.errors import Forbidden, Invalid, NotFound
from inver.ports import RequestSigner, S3Target
from inver.services.context import Caller
from inver.services.iceberg.finding import Finder
from inver.services.iceberg.naming import Identifier
from inver.services.iceberg.places import Places
from inver.services.iceberg.sealing import Seal

READS = frozenset({"GET", "HEAD"})
STAGED = "staged"
"""The property of a request that tells the place of a table that is still to be made."""
STAGED_MS = 24 * 3_600 * 1_000
MAX_DELETES = 1_000

# The parameters that a request for an object may have, as the sets in which they come together.
_OBJECT: dict[str, tuple[frozenset[str], ...]] = {
    "GET": (frozenset(), frozenset({"partNumber"})),
    "HEAD": (frozenset(), frozenset({"partNumber"})),
    "PUT": (frozenset(), frozenset({"partNumber", "uploadId"})),
    "POST": (frozenset({"uploads"}), frozenset({"uploadId"})),
    "DELETE": (frozenset(), frozenset({"uploadId"})),
}
_LIST = frozenset(
    {
        "list-type",
        "prefix",
        "delimiter",
        "continuation-token",
        "start-after",
        "max-keys",
        "encoding-type",
        "fetch-owner",
    }
)
_CALL_NAME = "x-id"
"""Some clients say here which call it is."""
_HARMLESS = re.compile(
    r"x-amz-(?:content-sha256|date|decoded-content-length|trailer|sdk-checksum-algorithm|checksum-[a-z0-9-]+"
    r"|server-side-encryption(?:-aws-kms-key-id|-bucket-key-enabled|-context)?|storage-class|request-payer"
    r"|security-token|te|user-agent)"
)
# A signature may be kept for other requests of an object, with another range, and with an id of their own.
_COVERED = re.compile(r"x-amz-.*|content-type|content-md5")
_KEY = re.compile(r"<Key>([^<]*)</Key>")
_DELETE = re.compile(
    r"\s*(?:<\?xml[^<>]*\?>)?\s*<Delete(?: xmlns=\"[^\"<>]*\")?>"
    r"(?:\s*<Quiet>(?:true|false)</Quiet>|\s*<Object>\s*<Key>[^<]*</Key>\s*</Object>)*\s*</Delete>\s*"
)


class SignRequest(msgspec.Struct, frozen=True, kw_only=True):
    region: str
    uri: str
    method: str
    headers: dict[str, list[str]]
    properties: dict[str, str] = {}
    body: str | None = None
    provider: str | None = None


class Signed(msgspec.Struct, frozen=True):
    uri: str
    headers: dict[str, list[str]]


class StagedTable(msgspec.Struct, frozen=True):
    """What was staged, by whom and when. Nothing else is kept of it before its first commit."""

    id: str
    key: str
    location: str
    principal: str
    at: int


class Signing:
    """Without a signer, clients reach the storage by other means."""

    def __init__(
        self, finder: Finder, places: Places, clock: Clock, seal: Seal, signer: RequestSigner | None
    ) -> None:
        self._finder = finder
        self._places = places
        self._clock = clock
        self._seal = seal
        self._signer = signer

    def offered(self, location: str) -> bool:
        return self._signer is not None and Location.parse(location).scheme == "s3"

    async def staged(self, caller: Caller, identifier: Identifier, table_id: str, location: str) -> str:
        """By this, requests are signed for who has just staged a table, until it is made."""
        made = StagedTable(table_id, identifier.key, location, caller.principal.id, self._clock.now_ms())
        return await self._seal.close(made)

    async def sign(self, caller: Caller, identifier: Identifier, request: SignRequest) -> Signed:
        root = await self._root(caller, identifier, request)
        if self._signer is None or not self.offered(root.text):
            raise Invalid("requests to the storage of this table are not signed here", field="uri")
        if (request.provider or "s3") != "s3":
            raise Invalid(f"requests to {request.provider!r} are not signed here", field="provider")
        target = self._signer.target(request.uri)
        if target.key:
            _check_object(root, target, request.method)
        elif request.method == "GET":
            _check_listing(root, target)
        else:
            _check_deletions(root, target, request)
        given = _checked_headers(request.headers)
        covered = {name: value for name, value in given.items() if _COVERED.fullmatch(name)}
        headers = self._signer.sign(request.method, request.uri, request.region, covered)
        if request.method not in READS:
            headers = given | headers
        return Signed(request.uri, {name: [value] for name, value in headers.items()})

    async def _root(self, caller: Caller, identifier: Identifier, request: SignRequest) -> Location:
        action = Action.READ if request.method in READS else Action.COMMIT
        try:
            return Location.parse((await self._finder.table(caller, identifier, action)).location)
        except NotFound:
            place = await self._staged(caller, identifier, request.properties.get(STAGED, ""))
            if place is None:
                raise
            return place

    async def _staged(self, caller: Caller, identifier: Identifier, token: str) -> Location | None:
        """The place of a table that the caller has staged, as long as it could be made there."""
        staged = await self._seal.open(token, StagedTable) if token else None
        if staged is None or (staged.key, staged.principal) != (identifier.key, caller.principal.id):
            return None
        if self._clock.now_ms() - staged.at > STAGED_MS or await self._finder.by_id(staged.id) is not None:
            return None
        home = await self._finder.namespace(
            caller, identifier.catalog, identifier.namespace, Action.CREATE_TABLE
        )
        return (await self._places.returned(caller, home, staged.id, staged.location)).location


def _check_object(root: Location, target: S3Target, method: str) -> None:
    if method not in _OBJECT or target.query.keys() - {_CALL_NAME} not in _OBJECT[method]:
        raise Invalid("this is not a request that is signed", field="uri")
    _require_inside(root, target.bucket, target.key)


def _check_listing(root: Location, target: S3Target) -> None:
    query = target.query
    if not query.keys() - {_CALL_NAME} <= _LIST or query.get("list-type") != "2":
        raise Invalid("this is not a request that is signed", field="uri")
    prefix = query.get("prefix", "")
    # A prefix that ends before the slash reaches into the folders whose names begin alike.
    if target.bucket != root.authority or not (prefix + "/").startswith(root.key + "/") or prefix == root.key:
        raise Forbidden("the listing reaches beyond the table")


def _check_deletions(root: Location, target: S3Target, request: SignRequest) -> None:
    if request.method != "POST" or target.query.keys() - {_CALL_NAME} != {"delete"}:
        raise Invalid("this is not a request that is signed", field="uri")
    body = request.body or ""
    if not _DELETE.fullmatch(body):
        raise Invalid("the body does not list objects to delete", field="body")
    keys = _KEY.findall(body)
    if not 0 < len(keys) <= MAX_DELETES:
        raise Invalid(f"between 1 and {MAX_DELETES} objects can be deleted at once", field="body")
    for key in keys:
        _require_inside(root, target.bucket, unescape(key))


def _require_inside(root: Location, bucket: str, key: str) -> None:
    place = Location.parse(f"s3://{bucket}/{key}", field="uri")
    if not root.contains(place) or place == root:
        raise Forbidden("the object does not belong to the table")


def _checked_headers(given: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The headers to send; what the server sets itself is left out."""
    found: dict[str, str] = {}
    for name, values in given.items():
        lower = name.lower()
        value = ",".join(values)
        if not value.isprintable() or not re.fullmatch(r"[a-z0-9-]+", lower):
            raise Invalid(f"the header {name[:100]!r} is not valid", field="headers")
        if lower.startswith("x-amz-") and not _HARMLESS.fullmatch(lower):
            raise Forbidden(f"a request with the header {lower} is not signed")
        if lower not in ("authorization", "host", "x-amz-date", "x-amz-security-token"):
            found[lower] = value
    # What proxies and libraries may still change is theirs.
    for loose in ("connection", "user-agent", "expect", "transfer-encoding", "accept-encoding"):
        found.pop(loose, None)
    return found
