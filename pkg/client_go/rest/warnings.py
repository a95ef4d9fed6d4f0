"""Warnings that the API server sends with its answers.

Go: k8s.io/client-go/rest/warnings.go
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator

from pkg import klog

WarningHandler = Callable[[int, str, str], None]

# code, agent, quoted text: RFC 7234, 5.5
# Repetitions are possessive: with each way to share the space between two of them, a long one would take minutes.
_WARNING = re.compile(r'\s*+(\d{3})\s++(\S++)\s++"((?:[^"\\]|\\.)*+)"\s*+(?:"[^"]*+")?\s*+(?:,|$)', re.ASCII)

# Texts that are remembered so as to be logged once, and characters of each; the rest is not logged.
MAX_WARNINGS = 256
MAX_WARNING_LENGTH = 4096


class WarningLogger:
    """Logs a text once, while it is among the last MAX_WARNINGS; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _logged
        self._logged: dict[str, None] = {}

    def __call__(self, code: int, agent: str, text: str) -> None:
        if code != 299 or not text:
            return
        text = text[:MAX_WARNING_LENGTH]
        with self._lock:
            known = text in self._logged
            # The last one told of goes to the end, the one not told of for the longest time goes.
            self._logged.pop(text, None)
            self._logged[text] = None
            if len(self._logged) > MAX_WARNINGS:
                del self._logged[next(iter(self._logged))]
        if known:
            return
        klog.warning_s(text)


default_warning_handler = WarningLogger()


def handle_warnings(headers: list[str], handler: WarningHandler) -> None:
    """Tell the handler the warnings in all Warning headers; what cannot be understood is left out."""
    for header in headers:
        for code, agent, text in _parse(header):
            handler(code, agent, text)


def _parse(header: str) -> Iterator[tuple[int, str, str]]:
    position = 0
    while match := _WARNING.match(header, position):
        yield int(match[1]), match[2], re.sub(r"\\(.)", r"\1", match[3])
        position = match.end()
