"""The one place that decides what stands behind a location."""

from __future__ import annotations

from collections.abc import Sequence

from inver.domain.locations import Location
from inver.errors import Forbidden
from inver.ports import ObjectStore
from inver.storage.local import LocalStore
from inver.storage.objects import RemoteStore
from inver.storage.options import StorageOptions


def open_store(
    location: Location,
    options: StorageOptions,
    *,
    allowed_roots: Sequence[Location] = (),
) -> ObjectStore:
    """A store rooted at `location`. Local folders open only below a root that the server was given."""
    if not location.is_local:
        return RemoteStore(location, options)
    allowed = [root for root in allowed_roots if root.contains(location)]
    if not allowed:
        raise Forbidden(
            f"{location} lies outside the local folders that this server may use",
            fix="choose a location below one of its storage roots",
        )
    innermost = max(allowed, key=lambda root: len(root.prefix))
    return LocalStore(location, trusted=innermost)
