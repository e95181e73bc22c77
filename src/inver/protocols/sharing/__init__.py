"""The Delta Sharing protocol, which is also called OpenSharing."""

from inver.protocols.sharing.routes import Sharing

__all__ = ["Sharing"]
