"""Which proxy the environment names for a URL.

Go: golang.org/x/net/http/httpproxy/proxy.go
"""

from __future__ import annotations

import contextlib
import ipaddress
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass

_IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_PORTS = {"http": "80", "https": "443"}


def from_environment(environment: Mapping[str, str], url: urllib.parse.SplitResult) -> str:
    """The value of HTTPS_PROXY or HTTP_PROXY, whichever is for the URL; "" if NO_PROXY excludes its host.

    The names in lower case count where those in upper case are missing. Loopback addresses never have a proxy.
    """
    proxy = _any(environment, f"{url.scheme.upper()}_PROXY")
    return proxy if proxy and use_proxy(_any(environment, "NO_PROXY"), url) else ""


def use_proxy(no_proxy: str, url: urllib.parse.SplitResult) -> bool:
    """Whether requests for the URL go through the proxy, by the value of NO_PROXY."""
    host = _ascii(url.hostname or "").lower()
    port = str(url.port or _PORTS.get(url.scheme, ""))
    if host == "localhost":
        return False
    address = _address(host)
    if address is not None and address.is_loopback:
        return False
    return not any(_matches(entry.strip().lower(), host, port, address) for entry in no_proxy.split(","))


def _matches(entry: str, host: str, port: str, address: _IPAddress | None) -> bool:
    """Whether one part of NO_PROXY is about the host: "*", a CIDR, or an address or a domain, with or without port."""
    if entry == "*":
        return True
    if (network := _network(entry)) is not None:
        return address is not None and address in network
    name, entry_port = _split_host_port(entry) or (entry, "")
    if not name or (entry_port and entry_port != port):
        return False
    if (wanted := _address(name)) is not None:
        return address == wanted
    return address is None and _Domain.parse(name).matches(host)


@dataclass(frozen=True, slots=True)
class _Domain:
    """example.com is for the host and all below it, .example.com and *.example.com are for those below it only."""

    suffix: str
    includes_itself: bool

    @classmethod
    def parse(cls, name: str) -> _Domain:
        name = _ascii(name.removeprefix("*") if name.startswith("*.") else name)
        return cls(name, False) if name.startswith(".") else cls(f".{name}", True)

    def matches(self, host: str) -> bool:
        return host.endswith(self.suffix) or (self.includes_itself and host == self.suffix[1:])


def _any(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.lower()) or ""


def _network(text: str) -> _IPNetwork | None:
    address, slash, bits = text.partition("/")
    if not (slash and bits.isascii() and bits.isdigit()):
        return None
    try:
        return ipaddress.ip_network(f"{address}/{bits}", strict=False)
    except ValueError:
        return None


def _address(text: str) -> _IPAddress | None:
    """An IPv4 address that is written as one of IPv6 is the IPv4 address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _split_host_port(text: str) -> tuple[str, str] | None:
    """None without a port, and for what has too many colons. Go: net.SplitHostPort"""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], port
    return (host, port) if colon and ":" not in host and "[" not in host else None


def _ascii(name: str) -> str:
    """The name as the DNS has it, if it has a form there."""
    with contextlib.suppress(UnicodeError):
        return name if name.isascii() else name.encode("idna").decode()
    return name
