"""Which server to talk to, and with which token.

What is named by an argument wins, then the environment (`INVER_URL`, `INVER_TOKEN`, `INVER_PROFILE`),
then the profile `default`, then the server that runs on the home folder. The token of a profile or of
a home folder goes to the server of that profile or folder and to no other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from inver.client.problems import Unreachable
from inver.errors import Invalid, NotFound

HOME = Path(".inver")
SERVER_FILE = "server.json"
TOKEN_FILE = "admin.token"
DEFAULT_PROFILE = "default"


@dataclass(frozen=True, slots=True)
class Target:
    url: str
    token: str | None

    def __repr__(self) -> str:
        return f"Target({self.url!r}, token={'***' if self.token else None})"


def locate(
    url: str | None = None,
    token: str | None = None,
    *,
    profile: str | None = None,
    home: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Target:
    if url is not None:
        return Target(url, token or environ.get("INVER_TOKEN"))
    if home is not None:
        found = from_home(home)
    elif profile is not None:
        found = from_profile(profile, environ)
        return Target(found.url, token or found.token or environ.get("INVER_TOKEN"))
    elif environ.get("INVER_URL"):
        return Target(environ["INVER_URL"], token or environ.get("INVER_TOKEN"))
    elif environ.get("INVER_PROFILE"):
        found = from_profile(environ["INVER_PROFILE"], environ)
    elif DEFAULT_PROFILE in profiles(environ):
        found = from_profile(DEFAULT_PROFILE, environ)
    else:
        found = from_home(Path(environ.get("INVER_SERVER__HOME") or HOME))
    return Target(found.url, token or environ.get("INVER_TOKEN") or found.token)


def from_home(home: Path) -> Target:
    """The server that runs on a home folder, with its administrator's token where that may be read."""
    try:
        running = msgspec.json.decode((home / SERVER_FILE).read_bytes(), type=_Running)
    except FileNotFoundError:
        raise _not_running(home) from None
    except msgspec.DecodeError:
        raise Invalid(f"{home / SERVER_FILE} is not what a server writes", field="home") from None
    try:
        return Target(running.url, (home / TOKEN_FILE).read_text().strip())
    except OSError:
        return Target(running.url, None)


def from_profile(name: str, environ: Mapping[str, str] = os.environ) -> Target:
    found = profiles(environ)
    if name not in found:
        raise NotFound(
            f"there is no profile {name!r}",
            kind="profile",
            fix=f"add [{name}] with url to {profile_file(environ)}",
        )
    profile = found[name]
    token = profile.token
    if token is None and profile.token_file is not None:
        path = Path(profile.token_file).expanduser()
        try:
            token = path.read_text().strip()
        except OSError as error:
            raise Invalid(f"{path} cannot be read: {error.strerror}", field=f"{name}.token_file") from None
    return Target(profile.url, token)


def profiles(environ: Mapping[str, str] = os.environ) -> dict[str, Profile]:
    path = profile_file(environ)
    if not path.is_file():
        return {}
    import tomllib

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return msgspec.convert(content, dict[str, Profile])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise Invalid(
            f"{path} is not valid: {error}",
            field=str(path),
            fix='write [name], url = "..." and token_file = "..."',
        ) from None


def profile_file(environ: Mapping[str, str] = os.environ) -> Path:
    folder = environ.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "inver" / "profiles.toml"


class Profile(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    token: str | None = None
    token_file: str | None = None


class _Running(msgspec.Struct):
    url: str


def _not_running(home: Path) -> Unreachable:
    error = Unreachable(f"no server runs on the home folder {home}")
    error.fix = "start one with `inver serve`, or name another with --url, --profile or --home"
    return error
