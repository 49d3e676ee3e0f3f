"""Where webhooks may go: not into private networks, unless that is allowed.

A name is resolved, every address it has is checked, and the request goes to a checked address: a name that
means something else a moment later (DNS rebinding) does not matter.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from urllib.parse import SplitResult, urlsplit

from angelia.broker.http.problem import Problem

__all__ = ["ForbiddenTargetError", "Target", "Targets"]

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class ForbiddenTargetError(Exception):
    """An address that events must not be delivered to, or a name that has none."""


class Target:
    """The URL of a sink, taken apart."""

    def __init__(self, url: str) -> None:
        parts = _split(url)
        self.url = url
        self.scheme = parts.scheme
        self.host = parts.hostname or ""
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.netloc = parts.netloc
        self._parts = parts

    def at(self, address: str) -> str:
        """The URL with an address instead of the name."""
        host = f"[{address}]" if ":" in address else address
        return self._parts._replace(netloc=f"{host}:{self.port}").geturl()


def _split(url: object) -> SplitResult:
    if not isinstance(url, str):
        raise _bad("is the URL to deliver to, a string")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise _bad(f"{url[:64]!r} is not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _bad("is an http or https URL, such as https://example.com/events")
    if not url.isascii() or any(code <= " " or code == "\\" for code in url):
        raise _bad("has characters that a URL cannot have; percent-encode them")
    if parts.username is not None or parts.password is not None:
        raise _bad("has a user name or password in it; use sinkcredential")
    if parts.fragment:
        raise _bad("has a fragment, which is not sent")
    return parts


def _bad(detail: str) -> Problem:
    return Problem(400, "invalid-subscription", f"sink: {detail}", attribute="sink")


class Targets:
    """The addresses that webhooks may go to. `allowed` are host names and networks."""

    def __init__(self, allowed: Iterable[str], resolve: Callable[[str, int], Awaitable[list[str]]]) -> None:
        self._networks: list[Network] = []
        self._names: set[str] = set()
        self._resolve = resolve
        for entry in allowed:
            try:
                self._networks.append(ipaddress.ip_network(entry, strict=False))
            except ValueError:
                self._names.add(entry.lower())

    async def address(self, target: Target) -> str:
        """A checked address of a target; else a `ForbiddenTargetError`."""
        try:
            found = await self._resolve(target.host, target.port)
        except (OSError, UnicodeError):
            found = []
        if not found:
            raise ForbiddenTargetError(f"{target.host[:64]!r} has no address")
        is_named = target.host.lower() in self._names
        is_listed = is_named or all(self._is_listed(address) for address in found)
        if not is_listed and not all(_is_public(address) for address in found):
            raise ForbiddenTargetError(f"{target.host[:64]!r} has an address in a private network")
        if target.scheme == "http" and not is_listed:
            raise ForbiddenTargetError("events go over https, except to targets that are allowed by name")
        return found[0]

    def _is_listed(self, text: str) -> bool:
        address = _unwrapped(text)
        return any(address in network for network in self._networks if network.version == address.version)


def _is_public(text: str) -> bool:
    address = _unwrapped(text)
    return address.is_global and not address.is_multicast and not address.is_reserved


def _unwrapped(text: str) -> Address:
    """The address that packets go to: IPv6 addresses may hold one of IPv4."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        return inner or address
    return address
