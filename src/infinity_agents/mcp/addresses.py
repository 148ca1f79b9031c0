"""HTTP for what a stranger's server names: never to an address inside of our own network.

A server says where its authorization server is. Were that followed blindly, it could have us fetch the metadata
service of the machine, or whatever trusts its neighbours. So each host, that of a redirect too, is resolved once,
looked at, and connected to by the very address that was looked at.
"""

import asyncio
import ipaddress
import socket

import httpx2

from ..wire.addresses import is_loopback, origin

_DISGUISES = (
    ipaddress.ip_network("64:ff9b::/96"),
    ipaddress.ip_network("2002::/16"),
    ipaddress.ip_network("2001::/32"),
)
"""Kinds of IPv6 addresses which stand for an IPv4 address."""


class AddressRefused(httpx2.TransportError):
    """The address is not one to connect to; the text says which and why."""


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """Connects to public addresses by https, to the origin of ``server_url``, and to loopback where that is there."""

    def __init__(self, server_url: str) -> None:
        super().__init__(trust_env=False)
        self._own = origin(server_url)
        self._is_local = is_loopback(server_url)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send it, to an address that was looked at.

        Raises:
            AddressRefused: it must not be sent.
        """
        if origin(str(request.url)) == self._own:
            return await super().handle_async_request(request)
        host = request.url.host
        address = await self._looked_at(host, request.url.port)
        if request.url.scheme != "https" and not address.is_loopback:
            raise AddressRefused(f"{request.url} is not https")
        looked_at = httpx2.Request(
            request.method,
            request.url.copy_with(host=str(address)),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},
        )
        return await super().handle_async_request(looked_at)

    async def _looked_at(self, host: str, port: int | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port or 443, type=socket.SOCK_STREAM)
        except OSError as error:
            raise AddressRefused(f"the host {host!r} cannot be found: {error}") from error
        addresses = [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
        for address in addresses:
            if not (is_public(address) or (self._is_local and address.is_loopback)):
                raise AddressRefused(f"the host {host!r} is at {address}, which is not a public address")
        return addresses[0]


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Tell whether an address is one of the open internet."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if any(address in network for network in _DISGUISES):
            return False
    return address.is_global and not address.is_multicast
