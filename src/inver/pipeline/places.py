"""Where a table's files are, for the driver and for Spark's tasks: a value that travels in a closure."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from inver.domain.locations import Location
from inver.secrets import Secret
from inver.storage.options import StorageOptions

if TYPE_CHECKING:
    from inver.ports import ObjectStore


@dataclass(frozen=True)
class Place:
    location: str
    options: StorageOptions = field(default_factory=StorageOptions)

    def __reduce__(self) -> Any:
        # Secrets refuse to be pickled; whoever sends a place to a task means to send its keys.
        plain = {each.name: getattr(self.options, each.name) for each in fields(self.options)}
        shown = {k: (v.reveal(), True) if isinstance(v, Secret) else (v, False) for k, v in plain.items()}
        return _arrived, (self.location, shown)

    def objects(self) -> ObjectStore:
        """The table's folder. Which folder that is, the catalog has said: nothing else is asked for."""
        from inver.storage.open import open_store

        where = Location.parse(self.location)
        return open_store(where, self.options, allowed_roots=(where,))

    def filesystem(self) -> Any:
        """A pyarrow file system whose root is the table's folder."""
        from pyarrow import fs

        where = Location.parse(self.location)
        if where.is_local:
            return fs.SubTreeFileSystem(f"/{where.key}", fs.LocalFileSystem())
        given = self.options
        if where.scheme == "s3":
            endpoint = given.endpoint or ""
            store = fs.S3FileSystem(
                access_key=given.access_key,
                secret_key=given.secret_key and given.secret_key.reveal(),
                session_token=given.session_token and given.session_token.reveal(),
                region=given.region,
                scheme="http" if endpoint.startswith("http:") else "https",
                endpoint_override=endpoint.partition("://")[2] or None,
                force_virtual_addressing=not given.path_style,
            )
            return fs.SubTreeFileSystem(f"{where.authority}/{where.key}", store)
        found, path = fs.FileSystem.from_uri(self.location)
        return fs.SubTreeFileSystem(path, found)


def _arrived(location: str, shown: dict[str, tuple[Any, bool]]) -> Place:
    given: dict[str, Any] = {
        name: Secret(value) if secret else value for name, (value, secret) in shown.items()
    }
    return Place(location, StorageOptions(**given))
