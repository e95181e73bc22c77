"""Unity Catalog's protocol: its own dialect, delta/v1, and the control API."""

from inver.protocols.unity.catalogs import CatalogRoutes
from inver.protocols.unity.commits import CommitRoutes, decode_commit
from inver.protocols.unity.credentials import CredentialRoutes
from inver.protocols.unity.delta_v1 import DeltaRoutes
from inver.protocols.unity.governance import ControlRoutes, PermissionRoutes
from inver.protocols.unity.locating import Locating
from inver.protocols.unity.routes import DeltaV1, Room, Unity, UnityControl
from inver.protocols.unity.tables import TableRoutes

__all__ = [
    "CatalogRoutes",
    "CommitRoutes",
    "ControlRoutes",
    "CredentialRoutes",
    "DeltaRoutes",
    "DeltaV1",
    "Locating",
    "PermissionRoutes",
    "Room",
    "TableRoutes",
    "Unity",
    "UnityControl",
    "decode_commit",
]
