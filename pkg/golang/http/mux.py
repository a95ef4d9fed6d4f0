"""Chooses the handler of a request by its path.

Go: net/http/server.go (ServeMux), github.com/emicklei/go-restful
"""

from __future__ import annotations

import html
import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import quote

from pkg.golang.http.request import Request
from pkg.golang.http.response import Handler, HTTPError, ResponseWriter, error

# What a redirect says of where to go: what the client sent is not repeated at any length.
MAX_LOCATION_BYTES = 4 << 10
# What goes around the handlers of a mux; it calls the handler that it was given, or answers in its place.
Filter = Callable[[Handler], Handler]


@dataclass(frozen=True, slots=True)
class _Route:
    pattern: str
    # Of each part between slashes: its text, or the name in braces.
    parts: tuple[tuple[str, bool], ...]
    # A pattern that ends in "/" or in "{name...}" takes all that begins so.
    open_end: bool
    # Whether a path with as many parts has to end in a slash; None if it may.
    slash: bool | None
    rest_name: str
    handler: Handler
    methods: frozenset[str] | None

    def match(self, parts: list[str], slash: bool) -> dict[str, str] | None:
        if len(parts) < len(self.parts) or (len(parts) > len(self.parts) and not self.open_end):
            return None
        if len(parts) == len(self.parts) and self.slash not in (None, slash):
            return None
        values: dict[str, str] = {}
        for (text, named), part in zip(self.parts, parts, strict=False):
            if named:
                values[text] = part
            elif text != part:
                return None
        if self.rest_name:
            values[self.rest_name] = "/".join(parts[len(self.parts) :])
        return values

    def rank(self) -> tuple[bool, int, int, bool]:
        """The least comes first: closed ends, then the most parts, the fewest names, those with methods."""
        return self.open_end, -len(self.parts), sum(named for _, named in self.parts), self.methods is None


class ServeMux:
    """A handler that leads to others. Set it up first, then serve: it is not guarded against changes meanwhile.

    Patterns: "/pods", "/exec/{namespace}/{pod}" with a part for each name, "/logs/{path...}" with the rest,
    "/debug/pprof/" for all below, and "/runningpods/{$}" for what ends so and no more. The most specific one is taken.
    With methods a pattern is one of go-restful's, to which "/pods/" is "/pods"; without it is one of Go's own.
    Paths that are not clean (`//`, `..`) are answered with a redirect to what they mean, so that no handler sees one,
    and so are those that lack but the last slash.

    DIVERGES (safer): a path whose slashes or dots were sent encoded (`%2e%2e`) is answered with a redirect to the path
    that it means.
    Go: net/http/server.go, (*ServeMux).findHandler: such a path is handed on to the handler as it is.
    Why: a handler that makes a file's path of it might leave its directory.
    Test: mux_test.py:test_unclean_paths_are_redirected
    """

    def __init__(self) -> None:
        # By the first part of the path.
        self._routes: dict[str, list[_Route]] = {}
        self._filters: list[Filter] = []

    def handle(self, pattern: str, handler: Handler, methods: Iterable[str] | None = None) -> None:
        """Without methods any is taken. Raises ValueError for a pattern that no path can match."""
        if not pattern.startswith("/"):
            raise ValueError(f"pattern {pattern!r} does not start with a slash")
        texts = pattern.strip("/").split("/") if pattern != "/" else []
        rest_name = ""
        if texts and texts[-1].endswith("...}"):
            rest_name = texts.pop()[1:-4]
        closed = texts[-1:] == ["{$}"]
        if closed:
            texts.pop()
        parts = tuple((text[1:-1], True) if text.startswith("{") else (text, False) for text in texts)
        if parts and parts[0][1]:
            raise ValueError(f"pattern {pattern!r} starts with a name")
        open_end = pattern.endswith("/") or bool(rest_name)
        slash = True if open_end or closed else None if methods else False
        allowed = None if methods is None else frozenset(methods)
        route = _Route(pattern, parts, open_end, slash, rest_name, handler, allowed)
        routes = self._routes.setdefault(parts[0][0] if parts else "", [])
        routes.append(route)
        routes.sort(key=_Route.rank)

    def filter(self, added: Filter) -> None:
        """Put it around all that is answered but 404; what is added first is the outermost.

        It sees requests with a wrong method too.

        DIVERGES (safer): requests that are answered with a redirect pass the filters first.
        Go: net/http/server.go, (*ServeMux).findHandler: they are answered before the filters of go-restful, which find
        out who asks.
        Why: the answer repeats what the client sent, and a client without credentials is to get no answer.
        Test: mux_test.py:test_filters_see_all_of_registered_paths_and_redirects
        """
        self._filters.append(added)

    def registered_paths(self) -> list[str]:
        """All patterns, in order."""
        return sorted({route.pattern for routes in self._routes.values() for route in routes})

    def __call__(self, w: ResponseWriter, r: Request) -> None:
        handler = self._choose(r)
        if handler is None:
            error(w, "404 page not found", 404)
            return
        for each in reversed(self._filters):
            handler = each(handler)
        handler(w, r)

    def _choose(self, r: Request) -> Handler | None:
        if (clean := clean_path(r.path)) != r.path:
            return _redirect_to(clean)
        handler = self._find(r, r.path)
        if handler is None and not r.path.endswith("/") and self._find(r, f"{r.path}/"):
            return _redirect_to(f"{r.path}/")
        return handler

    def _find(self, r: Request, path: str) -> Handler | None:
        parts = path.strip("/").split("/") if path != "/" else []
        allowed: set[str] = set()
        for key in dict.fromkeys((parts[0] if parts else "", "")):
            for route in self._routes.get(key, ()):
                values = route.match(parts, path.endswith("/"))
                if values is None:
                    continue
                # Whose method alone is wrong is told so, whatever takes all the rest.
                if route.methods is None and allowed:
                    break
                r.pattern = route.pattern
                if route.methods is None or r.method in route.methods:
                    r.path_values = values
                    return route.handler
                allowed |= route.methods
        return _method_not_allowed(allowed) if allowed else None


def _method_not_allowed(allowed: set[str]) -> Handler:
    def answer(w: ResponseWriter, r: Request) -> None:
        w.headers.set("Allow", ", ".join(sorted(allowed)))
        w.headers.set("Content-Type", "text/plain; charset=utf-8")
        w.write_header(405)
        w.write(b"405: Method Not Allowed")

    return answer


def clean_path(path: str) -> str:
    """The path without doubled slashes and dots, its last slash kept."""
    if not path.startswith("/"):
        path = "/" + path
    clean = posixpath.normpath(path)
    if clean.startswith("//"):
        clean = clean[1:]
    return clean + "/" if path.endswith("/") and clean != "/" else clean


def _redirect_to(path: str) -> Handler:
    def answer(w: ResponseWriter, r: Request) -> None:
        location = quote(path, safe="/:@!$&'()*+,;=~-._") + (f"?{r.raw_query}" if r.raw_query else "")
        if len(location) > MAX_LOCATION_BYTES:
            raise HTTPError(414, "414 Request URI Too Long")
        w.headers.set("Location", location)
        if r.method in ("GET", "HEAD"):
            w.headers.set("Content-Type", "text/html; charset=utf-8")
        w.write_header(307)
        if r.method == "GET":
            w.write(f'<a href="{html.escape(location)}">Temporary Redirect</a>.\n\n'.encode())

    return answer
