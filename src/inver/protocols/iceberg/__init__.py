"""The Iceberg REST protocol."""

from inver.protocols.iceberg.namespaces import NamespaceRoutes
from inver.protocols.iceberg.planning import PlanRoutes
from inver.protocols.iceberg.routes import Iceberg, Room
from inver.protocols.iceberg.tables import TableRoutes
from inver.protocols.iceberg.views import ViewRoutes

__all__ = ["Iceberg", "NamespaceRoutes", "PlanRoutes", "Room", "TableRoutes", "ViewRoutes"]
