"""Parse and write blocks of PEM data.

Go: encoding/pem
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass

# Headers, which encrypted keys have, end with an empty line. No header begins with "-", as all boundaries do. The
# look-ahead is positive because, before Python 3.11.5, a failed negative look-ahead does not restore the position.
_BLOCK = re.compile(
    rb"^-----BEGIN (?P<type>[^\r\n-]+)-----[ \t]*\r?\n"
    rb"(?P<headers>(?:(?=[^-])[^\r\n:]++:[^\r\n]*+\r?\n)*+)"
    rb"(?P<body>[A-Za-z0-9+/=\s]*?)"
    rb"-----END (?P=type)-----",
    re.MULTILINE,
)


@dataclass(slots=True, frozen=True)
class Block:
    """Represent one block of PEM data."""

    type: str
    """`type` is the type in the block's first line, such as "CERTIFICATE" or "EC PRIVATE KEY"."""
    has_headers: bool
    data: bytes
    """`data` is the decoded base64 text, which is DER."""


def blocks(data: bytes) -> Iterator[Block]:
    """Yield all blocks in order; text between blocks and blocks without valid base64 are skipped."""
    for match in _BLOCK.finditer(data):
        try:
            body = base64.b64decode(b"".join(match["body"].split()), validate=True)
        except binascii.Error:
            continue
        yield Block(match["type"].decode(errors="replace"), bool(match["headers"].strip()), body)


def encode(block_type: str, data: bytes) -> bytes:
    """Return one block, with lines of 64 characters."""
    text = base64.b64encode(data).decode()
    lines = "".join(text[i : i + 64] + "\n" for i in range(0, len(text), 64))
    return f"-----BEGIN {block_type}-----\n{lines}-----END {block_type}-----\n".encode()
