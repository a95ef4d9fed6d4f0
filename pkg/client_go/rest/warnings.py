"""Handle the warnings that the API server sends with its responses.

Go: k8s.io/client-go/rest/warnings.go
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator

from pkg import klog

WarningHandler = Callable[[int, str, str], None]

# The groups are the code, the agent and the quoted text (RFC 7234, section 5.5). The repetitions are possessive: if two
# of them could divide the space between them in many ways, a long run of spaces would take minutes.
_WARNING = re.compile(r'\s*+(\d{3})\s++(\S++)\s++"((?:[^"\\]|\\.)*+)"\s*+(?:"[^"]*+")?\s*+(?:,|$)', re.ASCII)

# The logger remembers this many texts, to log each of them once, and this many characters of each. It does not log
# further characters.
MAX_WARNINGS = 256
MAX_WARNING_LENGTH = 4096


class WarningLogger:
    """Log each text once, as long as it is among the MAX_WARNINGS texts seen last.

    All methods are thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # The lock guards _logged.
        self._logged: dict[str, None] = {}

    def __call__(self, code: int, agent: str, text: str) -> None:
        if code != 299 or not text:
            return
        text = text[:MAX_WARNING_LENGTH]
        with self._lock:
            known = text in self._logged
            # A text that was just seen moves to the end; the text that was seen longest ago is dropped.
            self._logged.pop(text, None)
            self._logged[text] = None
            if len(self._logged) > MAX_WARNINGS:
                del self._logged[next(iter(self._logged))]
        if known:
            return
        klog.warning_s(text)


default_warning_handler = WarningLogger()


def handle_warnings(headers: list[str], handler: WarningHandler) -> None:
    """Pass the warnings in all Warning headers to the handler; text that cannot be parsed is left out."""
    for header in headers:
        for code, agent, text in _parse(header):
            handler(code, agent, text)


def _parse(header: str) -> Iterator[tuple[int, str, str]]:
    position = 0
    while match := _WARNING.match(header, position):
        yield int(match[1]), match[2], re.sub(r"\\(.)", r"\1", match[3])
        position = match.end()
