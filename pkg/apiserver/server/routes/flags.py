"""Flags that can be set while the program runs.

Go: k8s.io/apiserver/pkg/server/routes/flags.go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pkg.golang import http

# DIVERGES: Go takes a value of any length. It may come in chunks of one byte, and a mebibyte of these keeps Python busy
# for seconds.
MAX_VALUE_BYTES = 1 << 10


def string_flag_put_handler(setter: Callable[[str], str]) -> http.Handler:
    """PUT sets the flag to the body. The setter returns what to answer and raises ValueError for a wrong value."""

    def serve(w: http.ResponseWriter, r: http.Request) -> None:
        if r.method != "PUT":
            _write_plain_text(w, 406, "unsupported http method")
            return
        value = r.body.read(MAX_VALUE_BYTES + 1)
        if len(value) > MAX_VALUE_BYTES:
            _write_plain_text(w, 413, "value is too long")
            return
        try:
            _write_plain_text(w, 200, setter(value.decode()))
        except ValueError as err:
            _write_plain_text(w, 400, str(err))

    return serve


def _write_plain_text(w: http.ResponseWriter, code: int, text: str) -> None:
    w.headers.set("Content-Type", "text/plain")
    w.headers.set("X-Content-Type-Options", "nosniff")
    w.write_header(code)
    w.write(f"{text}\n".encode())
