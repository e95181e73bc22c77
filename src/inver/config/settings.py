"""Every setting: its type, its default, what it means, and the key under which it is set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from inver.config.kinds import (
    COUNT,
    DURATION,
    FLAG,
    MILLISECONDS,
    PATH,
    PORT,
    SECONDS,
    SECRET,
    SIZE,
    SWITCH,
    TEXT,
    TEXTS,
    URL,
    Kind,
)
from inver.secrets import Secret

DEFAULT = "default"
"""The origin of a value that nobody set."""


@dataclass(frozen=True, slots=True)
class Option:
    """What a field says about itself. `key` is given where it is not the section and the field's name."""

    kind: Kind
    doc: str
    key: str | None = None
    default: str | None = None
    """The default in words, where it follows from other settings."""


class StorageSettings(msgspec.Struct, frozen=True, kw_only=True):
    warehouse: Annotated[
        str | None,
        Option(
            URL, "Folder or bucket prefix of managed tables.", default="the folder warehouse in server.home"
        ),
    ] = None
    endpoint: Annotated[
        str | None, Option(URL, "Address of an S3-compatible store, where it is not AWS.")
    ] = None
    allow_http: Annotated[bool, Option(FLAG, "Take an endpoint that is not encrypted.")] = False
    region: Annotated[str | None, Option(TEXT, "Region of the bucket.")] = None
    path_style: Annotated[bool, Option(FLAG, "Name the bucket in the path and not in the host.")] = True
    access_key: Annotated[
        str | None,
        Option(TEXT, "Access key; without one the provider's own chain applies: environment, instance role."),
    ] = None
    secret_key: Annotated[Secret | None, Option(SECRET, "Secret key that belongs to the access key.")] = None
    session_token: Annotated[Secret | None, Option(SECRET, "Session token of temporary keys.")] = None
    sts_role: Annotated[
        str | None,
        Option(TEXT, "ARN of a role that is taken on for temporary keys to one table's folder in S3."),
    ] = None
    sts_endpoint: Annotated[
        str | None, Option(URL, "Address of the token service, where it is not that of AWS in the region.")
    ] = None
    gcs_service_account: Annotated[
        Secret | None, Option(SECRET, "JSON text of a Google service account key.")
    ] = None
    gcs_hmac_id: Annotated[
        str | None, Option(TEXT, "Access id of a Google HMAC key, which signs URLs of files faster.")
    ] = None
    gcs_hmac_secret: Annotated[
        Secret | None, Option(SECRET, "Secret that belongs to the Google access id.")
    ] = None
    azure_account: Annotated[str | None, Option(TEXT, "Azure account, where a location names none.")] = None
    azure_key: Annotated[Secret | None, Option(SECRET, "Key of the Azure account.")] = None
    azure_sas: Annotated[Secret | None, Option(SECRET, "Shared access signature for the Azure account.")] = (
        None
    )


class AuthSettings(msgspec.Struct, frozen=True, kw_only=True):
    enabled: Annotated[
        bool, Option(FLAG, "Ask every request for a token. When off, everybody is the administrator.")
    ] = True
    allow_insecure: Annotated[
        bool, Option(FLAG, "Let auth.enabled be off on an address that other machines can reach.")
    ] = False
    failures: Annotated[int, Option(COUNT, "Failed authentications that one address may make in a row.")] = 20
    failure_interval: Annotated[
        float, Option(SECONDS, "Time after which one failed authentication is forgiven.")
    ] = 3.0


class DeltaSettings(msgspec.Struct, frozen=True, kw_only=True):
    verify_commits: Annotated[
        bool, Option(FLAG, "Read each staged commit and compare it with the request before it can win.")
    ] = True
    publish_after_s: Annotated[
        float, Option(SECONDS, "Time that a writer has to publish its own commit before the server does it.")
    ] = 2.0
    stage_ms: Annotated[
        int,
        Option(DURATION, "How long a staged table may wait to be finished.", "delta.stage"),
    ] = MILLISECONDS["d"]


class IcebergSettings(msgspec.Struct, frozen=True, kw_only=True):
    cache: Annotated[
        int, Option(SIZE, "Memory of one server process for the metadata of Iceberg tables.")
    ] = 256 * 2**20
    expired_as_419: Annotated[
        bool, Option(FLAG, "Answer an expired token with 419, as older clients expect, and not with 401.")
    ] = False


class LanceSettings(msgspec.Struct, frozen=True, kw_only=True):
    threads: Annotated[int, Option(COUNT, "Operations on the data of Lance tables that run at once.")] = 4
    stage_ms: Annotated[
        int,
        Option(
            DURATION,
            "How long what was written for a version may wait for it, before it is cleaned up.",
            "lance.stage",
        ),
    ] = MILLISECONDS["d"]
    adopt_phantoms: Annotated[
        bool,
        Option(
            FLAG,
            "Take over what somebody wrote past the catalog as the next version; it is put aside otherwise.",
        ),
    ] = False


class CareSettings(msgspec.Struct, frozen=True, kw_only=True):
    scheduler: Annotated[
        str,
        Option(SWITCH, "Keep a worker beside the server that runs what the plan of care calls for."),
    ] = "off"
    spark: Annotated[
        str, Option(TEXT, "Where jobs find Spark: local[N], spark://host:port, or sc://host:port.")
    ] = "local[*]"
    lease: Annotated[
        float, Option(SECONDS, "Time after which the table of a worker that is silent is free for others.")
    ] = 60.0
    jars: Annotated[
        Path | None,
        Option(PATH, "Folder with the jars of connectors.", default="the one that inver spark jars fills"),
    ] = None


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True):
    body: Annotated[int, Option(SIZE, "Largest request body, after decompression.")] = 32 * 2**20
    head: Annotated[int, Option(SIZE, "Largest sum of request line and headers.")] = 64 * 2**10
    headers: Annotated[int, Option(COUNT, "Most headers of a request.")] = 100
    url: Annotated[int, Option(SIZE, "Longest URL.")] = 16 * 2**10
    depth: Annotated[int, Option(COUNT, "Deepest nesting of a JSON body.")] = 64
    request_time: Annotated[float, Option(SECONDS, "Time to answer a request.")] = 30.0
    head_time: Annotated[float, Option(SECONDS, "Time for a request's headers to arrive.")] = 10.0
    idle_time: Annotated[float, Option(SECONDS, "Longest pause within a request's body or an answer.")] = 30.0
    keep_alive: Annotated[float, Option(SECONDS, "Time that an unused connection stays open.")] = 75.0
    pipelined: Annotated[int, Option(COUNT, "Requests that wait on one connection.")] = 16
    connections: Annotated[int, Option(COUNT, "Open connections of one server process.")] = 10_000


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    home: Annotated[
        Path,
        Option(
            PATH,
            "Folder that holds everything kept: the database, the warehouse, the first token.",
            "server.home",
        ),
    ] = Path(".inver")
    host: Annotated[str, Option(TEXT, "Address to listen on.", "server.host")] = "127.0.0.1"
    port: Annotated[int, Option(PORT, "Port of every protocol; 0 picks a free one.", "server.port")] = 8181
    management_port: Annotated[
        int | None,
        Option(
            PORT,
            "Port of metrics and probes; 0 picks a free one.",
            "server.management_port",
            "8182, or a free one when server.port is 0",
        ),
    ] = None
    workers: Annotated[
        int, Option(COUNT, "Server processes; more than one needs PostgreSQL.", "server.workers")
    ] = 1
    ready_file: Annotated[
        Path | None,
        Option(
            PATH,
            "File that gets url, management_url and pid as JSON when the server is ready.",
            "server.ready_file",
        ),
    ] = None
    grace_s: Annotated[
        float, Option(SECONDS, "Time that a stopping server gives to requests in flight.", "server.grace_s")
    ] = 10.0
    public_url: Annotated[
        str | None,
        Option(
            URL, "How clients reach the server, where a proxy stands in front of it.", "server.public_url"
        ),
    ] = None
    trusted_proxies: Annotated[
        tuple[str, ...],
        Option(TEXTS, "Networks of proxies whose X-Forwarded-For is believed.", "server.trusted_proxies"),
    ] = ()
    database: Annotated[
        str | None,
        Option(
            URL,
            "Where PostgreSQL is, as a postgresql:// URL.",
            "database.url",
            "SQLite in the file inver.db in server.home",
        ),
    ] = None
    hold_ms: Annotated[int, Option(DURATION, "How long a dropped table can come back.", "tables.hold")] = (
        7 * MILLISECONDS["d"]
    )
    external_roots: Annotated[
        tuple[str, ...],
        Option(
            TEXTS,
            "Folders and bucket prefixes below which external tables may lie.",
            "storage.external_roots",
        ),
    ] = ()
    storage: StorageSettings = StorageSettings()
    auth: AuthSettings = AuthSettings()
    delta: DeltaSettings = DeltaSettings()
    iceberg: IcebergSettings = IcebergSettings()
    lance: LanceSettings = LanceSettings()
    care: CareSettings = CareSettings()
    limits: LimitSettings = LimitSettings()
    origins: Mapping[str, str] = {}

    @property
    def warehouse(self) -> str:
        """The location of managed tables."""
        return self.storage.warehouse or str((self.home / "warehouse").resolve())

    @property
    def probe_port(self) -> int:
        if self.management_port is not None:
            return self.management_port
        return 0 if self.port == 0 else 8182

    @property
    def database_file(self) -> Path:
        return self.home / "inver.db"

    @property
    def token_file(self) -> Path:
        return self.home / "admin.token"

    @property
    def server_file(self) -> Path:
        """Where the running server says how it is reached."""
        return self.home / "server.json"

    def value(self, key: str) -> Any:
        found: Any = self
        for name in settings_table()[key].path:
            found = getattr(found, name)
        return found

    def origin(self, key: str) -> str:
        """Where a value came from: `default`, a file, an environment variable or a flag."""
        settings_table()[key]
        return self.origins.get(key, DEFAULT)

    def __repr__(self) -> str:
        # The database URL may hold a password.
        shown = (f"{s.key}={s.kind.shown(self.value(s.key))}" for s in settings_table().values())
        return f"Settings({', '.join(shown)})"


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the reference. `path` leads to the attribute."""

    key: str
    path: tuple[str, ...]
    kind: Kind
    doc: str
    default: Any
    default_text: str

    @property
    def env(self) -> str:
        return "INVER_" + self.key.upper().replace(".", "__")

    @property
    def section(self) -> str:
        return self.key.partition(".")[0]


@cache
def settings_table() -> dict[str, Setting]:
    """Every setting by its key, in the order of sections and declaration."""
    found = list(_walk(Settings, (), ""))
    sections = list(dict.fromkeys(setting.section for setting in found))
    return {s.key: s for s in sorted(found, key=lambda s: sections.index(s.section))}


def _walk(struct: type[msgspec.Struct], path: tuple[str, ...], section: str) -> list[Setting]:
    hints = get_type_hints(struct, include_extras=True)
    found: list[Setting] = []
    for field in msgspec.structs.fields(struct):
        here, hint = (*path, field.name), hints[field.name]
        if get_origin(hint) is Annotated:
            option = next(extra for extra in get_args(hint) if isinstance(extra, Option))
            key = option.key or f"{section}.{field.name}"
            text = option.default or option.kind.shown(field.default)
            found.append(Setting(key, here, option.kind, option.doc, field.default, text))
        elif isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            found.extend(_walk(hint, here, field.name))
    return found
