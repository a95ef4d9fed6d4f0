"""Set flags while the program runs.

Go: k8s.io/apiserver/pkg/server/routes/flags.go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pkg.golang import http

# DIVERGES (safer): the kubelet responds with 413 to a flag value of more bytes than this.
# Go: k8s.io/apiserver/pkg/server/routes/flags.go, StringFlagPutHandler: the Go kubelet has no bound.
# Why: a mebibyte in chunks of one byte would keep Python busy for seconds.
# Test: pkg/apiserver/server/zpage_test.py:test_of_a_long_value_hardly_more_is_read_than_may_come
MAX_VALUE_BYTES = 1 << 10


def string_flag_put_handler(setter: Callable[[str], str]) -> http.Handler:
    """Return a handler that sets a flag to the body of a PUT request.

    The setter returns the text of the response, and raises ValueError for an invalid value.
    """

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
