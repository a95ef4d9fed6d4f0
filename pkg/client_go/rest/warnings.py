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
_WARNING = re.compile(r'\s*(\d{3})\s+(\S+)\s+"((?:[^"\\]|\\.)*)"\s*(?:"[^"]*")?\s*(?:,|$)')


class WarningLogger:
    """Logs each text once; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _logged
        self._logged: set[str] = set()

    def __call__(self, code: int, agent: str, text: str) -> None:
        if code != 299 or not text:
            return
        with self._lock:
            if text in self._logged:
                return
            self._logged.add(text)
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
