"""URLs from outside, and URLs in messages.

Go: net/url/url.go
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urljoin, urlsplit

# Characters of a URL's host, with its user and port, if they are not all ASCII.
MAX_UNICODE_AUTHORITY = 1024

# The authority, as urlsplit finds it: these three blanks it removes everywhere.
_AUTHORITY = re.compile(r"/[\t\r\n]*/([^/?#]*)")
_USER_INFO = re.compile(r"(?<=//)[^/?#]*@")


def split(url: str) -> SplitResult:
    """urlsplit for a URL from outside. Raises ValueError for what is none. Go: url.Parse

    urlsplit makes Unicode's normal form of the host. Of many marks that stand above and below one letter this takes the
    square of their number, in which no other thread runs: minutes for a host of a mebibyte. And it keeps the last 128
    URLs with their parts, which may be a gigabyte if pods choose them.
    """
    found = _AUTHORITY.search(url)
    if found is not None and len(found[1]) > MAX_UNICODE_AUTHORITY and not found[1].isascii():
        raise ValueError(f"net/url: host of {len(found[1])} characters is too long")
    parts: SplitResult = urlsplit.__wrapped__(url)  # type: ignore[attr-defined]
    return parts


def join(base: str, reference: str) -> str:
    """urljoin for a reference that `split` takes; nothing of the two is kept. Go: URL.Parse"""
    try:
        return urljoin(base, reference)
    finally:
        urlsplit.cache_clear()  # type: ignore[attr-defined]


def redacted(url: str) -> str:
    """The URL without its user and password, whether it is one that can be parsed or not. Go: URL.Redacted"""
    return _USER_INFO.sub("", url, count=1)
