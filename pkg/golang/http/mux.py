"""Chooses the handler of a request by its path.

Go: net/http/server.go (ServeMux), github.com/emicklei/go-restful
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import quote

from pkg.golang.http.request import Request
from pkg.golang.http.response import Handler, ResponseWriter, error

# What goes around the handlers of a mux; it calls the handler that it was given, or answers in its place.
Filter = Callable[[Handler], Handler]


@dataclass(frozen=True, slots=True)
class _Route:
    pattern: str
    # Of each part between slashes: its text, or the name in braces.
    parts: tuple[tuple[str, bool], ...]
    # A pattern that ends in "/" or in "{name...}" takes all that begins so.
    open_end: bool
    rest_name: str
    handler: Handler
    methods: frozenset[str] | None

    def match(self, parts: list[str]) -> dict[str, str] | None:
        if len(parts) < len(self.parts) or (len(parts) > len(self.parts) and not self.open_end):
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

    def rank(self) -> tuple[bool, int, int]:
        """The least comes first: closed ends, then the most parts, then the fewest names."""
        return self.open_end, -len(self.parts), sum(named for _, named in self.parts)


class ServeMux:
    """A handler that leads to others. Set it up first, then serve: it is not guarded against changes meanwhile.

    Patterns: "/pods" (and "/pods/"), "/exec/{namespace}/{pod}" with a part for each name, "/logs/{path...}" with the
    rest, and "/debug/pprof/" for all below. The most specific one is taken. Paths that are not clean (`//`, `..`) are
    answered with a redirect to what they mean, so that no handler sees one.
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
        parts = tuple((text[1:-1], True) if text.startswith("{") else (text, False) for text in texts)
        if parts and parts[0][1]:
            raise ValueError(f"pattern {pattern!r} starts with a name")
        open_end = pattern.endswith("/") or bool(rest_name)
        route = _Route(pattern, parts, open_end, rest_name, handler, None if methods is None else frozenset(methods))
        routes = self._routes.setdefault(parts[0][0] if parts else "", [])
        routes.append(route)
        routes.sort(key=_Route.rank)

    def filter(self, added: Filter) -> None:
        """Put it around the handler of every registered path; what is added first is the outermost.

        It sees requests with a wrong method too, but none for a path that nobody registered.
        """
        self._filters.append(added)

    def registered_paths(self) -> list[str]:
        """All patterns, in order."""
        return sorted({route.pattern for routes in self._routes.values() for route in routes})

    def __call__(self, w: ResponseWriter, r: Request) -> None:
        if (clean := clean_path(r.path)) != r.path:
            _redirect(w, r, clean)
            return
        handler = self._find(r)
        if handler is None:
            error(w, "404 page not found", 404)
            return
        for each in reversed(self._filters):
            handler = each(handler)
        handler(w, r)

    def _find(self, r: Request) -> Handler | None:
        parts = r.path.strip("/").split("/") if r.path != "/" else []
        allowed: set[str] = set()
        for key in dict.fromkeys((parts[0] if parts else "", "")):
            for route in self._routes.get(key, ()):
                values = route.match(parts)
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


def _redirect(w: ResponseWriter, r: Request, path: str) -> None:
    location = quote(path, safe="/:@!$&'()*+,;=~-._") + (f"?{r.raw_query}" if r.raw_query else "")
    w.headers.set("Location", location)
    w.headers.set("Content-Type", "text/plain; charset=utf-8")
    w.write_header(307)
