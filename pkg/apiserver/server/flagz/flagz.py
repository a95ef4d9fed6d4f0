"""Serve the flags.

Go: k8s.io/apiserver/pkg/server/flagz/flagz.go, textserializer.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pkg.apiserver.server import zpage
from pkg.apiserver.server.flagz.flagreader import Reader

if TYPE_CHECKING:
    from pkg.golang import http

DEFAULT_FLAGZ_PATH = "/flagz"


def install(mux: http.ServeMux, component_name: str, flag_reader: Reader) -> None:
    def text() -> str:
        separator = zpage.delimiter()
        return "".join(f"{name}{separator}{value}\n" for name, value in sorted(flag_reader.get_flagz().items()))

    def fields() -> dict[str, Any]:
        return {"flags": flag_reader.get_flagz()}

    mux.handle(DEFAULT_FLAGZ_PATH, zpage.handler(component_name, "flagz", text, fields))
