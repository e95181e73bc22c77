"""Who is asking, when trusted proxies stand in between.

Only `X-Forwarded-For` is read, and only the client's address is taken from it: hosts, schemes
and paths that a proxy reports never steer anything. `Forwarded` is not read at all, since a proxy
that writes the one header passes the other on as its client made it up.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network


class Proxies:
    """The networks whose word about the client's address is taken."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = tuple(ip_network(network) for network in networks)

    def trusts(self, peer: str) -> bool:
        address = _address(peer)
        return address is not None and self._holds(address)

    def client(self, peer: str, forwarded_for: bytes) -> str:
        """The right-most address that is not a trusted proxy's; `peer` is one."""
        nearest = peer
        for hop in reversed(forwarded_for.decode("latin-1").split(",")):
            address = _address(hop.strip())
            if address is None:
                break
            nearest = str(address)
            if not self._holds(address):
                break
        return nearest

    def _holds(self, address: IPv4Address | IPv6Address) -> bool:
        return any(address in network for network in self._networks)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """An address with or without a port; an IPv4 address stays one when it comes mapped into IPv6."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
