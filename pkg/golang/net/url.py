"""URLs in messages.

Go: net/url/url.go
"""

from __future__ import annotations

import re

_USER_INFO = re.compile(r"(?<=//)[^/?#]*@")


def redacted(url: str) -> str:
    """The URL without its user and password, whether it is one that can be parsed or not. Go: URL.Redacted"""
    return _USER_INFO.sub("", url, count=1)
