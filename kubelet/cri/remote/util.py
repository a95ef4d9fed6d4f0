"""Parse the endpoint of a runtime, as flags and the configuration contain it.

Go: k8s.io/cri-client/pkg/util/util_unix.go
"""

from __future__ import annotations

from urllib.parse import urlsplit

_UNIX_PROTOCOL = "unix"


def get_address(endpoint: str) -> str:
    """Return the path of the socket of `unix:///run/x.sock` or of a bare `/run/x.sock`. Raise ValueError.

    Go: GetAddressAndDialer
    """
    protocol, address = _parse_endpoint_with_fallback_protocol(endpoint, _UNIX_PROTOCOL)
    if protocol != _UNIX_PROTOCOL:
        raise ValueError(f"endpoint {endpoint!r}: only unix sockets are supported")
    if not address.startswith("/"):
        raise ValueError(f"endpoint {endpoint!r}: expected unix:///path/of/socket")
    return address


def _parse_endpoint_with_fallback_protocol(endpoint: str, fallback_protocol: str) -> tuple[str, str]:
    if "://" not in endpoint and not endpoint.startswith(f"{fallback_protocol}:"):
        endpoint = f"{fallback_protocol}://{endpoint}"
    return _parse_endpoint(endpoint)


def _parse_endpoint(endpoint: str) -> tuple[str, str]:
    url = urlsplit(endpoint)
    match url.scheme:
        case "tcp":
            return "tcp", url.netloc
        case "unix":
            # unix://run/x.sock has the host "run". Keep it, so that the error message shows what is wrong.
            return "unix", url.netloc + url.path
        case scheme:
            raise ValueError(f"endpoint {endpoint!r}: protocol {scheme!r} not supported")
