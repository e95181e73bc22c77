"""The Lance Namespace protocol."""

from inver.protocols.lance.data import DataRoutes
from inver.protocols.lance.identity import presented
from inver.protocols.lance.namespaces import NamespaceRoutes
from inver.protocols.lance.refs import RefRoutes
from inver.protocols.lance.routes import Lance, Room
from inver.protocols.lance.tables import TableRoutes
from inver.protocols.lance.transactions import TransactionRoutes
from inver.protocols.lance.versions import VersionRoutes, decode_operation

__all__ = [
    "DataRoutes",
    "Lance",
    "NamespaceRoutes",
    "RefRoutes",
    "Room",
    "TableRoutes",
    "TransactionRoutes",
    "VersionRoutes",
    "decode_operation",
    "presented",
]
