"""Serve a page as text or as an object, as /flagz and /statusz do.

Go: k8s.io/apiserver/pkg/server/flagz/flagz.go (handleFlagz), k8s.io/apiserver/pkg/server/statusz/statusz.go
(handleStatusz)
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pkg.apiserver.endpoints.handlers import negotiation

if TYPE_CHECKING:
    from pkg.golang import http

GROUP = "config.k8s.io"
_VERSIONS = ("v1beta1", "v1alpha1")
_DEPRECATED = ("v1alpha1",)

_HEADER = """
{component} {page}
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for \
debugging purposes only.
"""
_DELIMITERS = (":", ": ", "=", " ")


def delimiter() -> str:
    """Return a random delimiter, so that no program comes to depend on the text."""
    return random.choice(_DELIMITERS)


def handler(component: str, page: str, text: Callable[[], str], fields: Callable[[], dict[str, Any]]) -> http.Handler:
    """Return a handler for the page.

    The handler serves the text. If the Accept header names the page's kind in full, it serves the fields as an object
    of that kind.
    """
    kind = page.capitalize()
    kinds = [negotiation.GroupVersionKind(GROUP, version, kind) for version in _VERSIONS]

    def serve(w: http.ResponseWriter, r: http.Request) -> None:
        try:
            media_type = negotiation.negotiate_output_media_type(r.headers.get("Accept"), kinds)
        except negotiation.NotAcceptableError as err:
            negotiation.write_not_acceptable(w, err)
            return
        if media_type.convert is None:
            w.headers.set("Content-Type", "text/plain; charset=utf-8")
            w.write((_HEADER.format(component=component, page=page) + text()).encode())
            return
        if media_type.convert.version in _DEPRECATED:
            warning = f"This version of the {page} endpoint is deprecated. Please use a newer version."
            w.headers.set("Warning", f'299 - "{warning}"')
        document = {
            "kind": kind,
            "apiVersion": media_type.convert.api_version,
            "metadata": {"name": component},
            **fields(),
        }
        negotiation.write_structured(w, r, media_type, document)

    return serve
