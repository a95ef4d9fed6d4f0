"""Parse URLs from outside, and prepare URLs for messages.

Go: net/url/url.go
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urljoin, urlsplit

# The authority of a URL (user, host and port) may have this many characters if it is not all ASCII.
MAX_UNICODE_AUTHORITY = 1024

# The pattern matches the authority as urlsplit does; urlsplit removes these three white space characters everywhere.
_AUTHORITY = re.compile(r"/[\t\r\n]*/([^/?#]*)")
_USER_INFO = re.compile(r"(?<=//)[^/?#]*@")


def split(url: str) -> SplitResult:
    """Split a URL from outside, as urlsplit does. Raise ValueError if the URL is invalid.

    urlsplit normalizes the host's Unicode. For a letter with many combining marks this takes time quadratic in their
    number, during which no other thread runs: minutes for a host of 1 MiB. urlsplit also caches the last 128 URLs with
    their parts, which may be 1 GiB if pods choose them.

    Go: url.Parse
    """
    found = _AUTHORITY.search(url)
    if found is not None and len(found[1]) > MAX_UNICODE_AUTHORITY and not found[1].isascii():
        raise ValueError(f"net/url: host of {len(found[1])} characters is too long")
    parts: SplitResult = urlsplit.__wrapped__(url)  # type: ignore[attr-defined]
    return parts


def join(base: str, reference: str) -> str:
    """Join a base and a reference that `split` accepts, as urljoin does, without caching the two.

    Go: URL.Parse
    """
    try:
        return urljoin(base, reference)
    finally:
        urlsplit.cache_clear()  # type: ignore[attr-defined]


def redacted(url: str) -> str:
    """Return the URL without user and password, even if it cannot be parsed.

    Go: URL.Redacted
    """
    return _USER_INFO.sub("", url, count=1)
