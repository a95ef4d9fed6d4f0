"""Find the proxy that the environment names for a URL.

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
    """Return the value of HTTPS_PROXY or HTTP_PROXY that applies to the URL, or "" if NO_PROXY excludes its host.

    A name in lower case counts if the name in upper case is unset. Loopback addresses never have a proxy.
    """
    proxy = _any(environment, f"{url.scheme.upper()}_PROXY")
    return proxy if proxy and use_proxy(_any(environment, "NO_PROXY"), url) else ""


def use_proxy(no_proxy: str, url: urllib.parse.SplitResult) -> bool:
    """Report whether requests for the URL use the proxy, according to the value of NO_PROXY."""
    host = _ascii(url.hostname or "").lower()
    port = str(url.port or _PORTS.get(url.scheme, ""))
    if host == "localhost":
        return False
    address = _address(host)
    if address is not None and address.is_loopback:
        return False
    return not any(_matches(entry.strip().lower(), host, port, address) for entry in no_proxy.split(","))


def _matches(entry: str, host: str, port: str, address: _IPAddress | None) -> bool:
    """Report whether one entry of NO_PROXY matches the host.

    An entry is "*", a CIDR, or an address or domain with an optional port.
    """
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
    """Represent a domain in NO_PROXY.

    example.com matches the host and its subdomains; .example.com and *.example.com match the subdomains only.
    """

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
    """Return the address, or None if the text is not an address.

    An IPv4-mapped IPv6 address is returned as the IPv4 address.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _split_host_port(text: str) -> tuple[str, str] | None:
    """Return host and port, or None if the text has no port or too many colons.

    Go: net.SplitHostPort
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], port
    return (host, port) if colon and ":" not in host and "[" not in host else None


def _ascii(name: str) -> str:
    """Return the name in its DNS form (IDNA), or unchanged if it has no such form."""
    with contextlib.suppress(UnicodeError):
        return name if name.isascii() else name.encode("idna").decode()
    return name
