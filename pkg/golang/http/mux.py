"""Choose the handler of a request by its path.

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

# This constant limits the Location of a redirect, so that the server does not repeat long text of the client.
MAX_LOCATION_BYTES = 4 << 10
# A filter wraps a handler; the result calls the handler or responds in its place.
Filter = Callable[[Handler], Handler]


@dataclass(frozen=True, slots=True)
class _Route:
    pattern: str
    # Each part between slashes is a pair: its text and False, or the name in braces and True.
    parts: tuple[tuple[str, bool], ...]
    # A pattern that ends in "/" or in "{name...}" matches all paths with that prefix.
    open_end: bool
    # `slash` says whether a path with the same number of parts must end in a slash; None means that both forms match.
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
        """Return the sort key; the route with the smallest key is tried first.

        Routes with a closed end precede the others. Then routes with more parts, with fewer names, and with methods
        come first.
        """
        return self.open_end, -len(self.parts), sum(named for _, named in self.parts), self.methods is None


class ServeMux:
    """Route requests to handlers by path. Register all handlers before serving; registration is not thread-safe.

    Patterns: "/pods", "/exec/{namespace}/{pod}" with one part for each name, "/logs/{path...}" with the rest of the
    path, "/debug/pprof/" for all paths below it, and "/runningpods/{$}" for exactly this path. The most specific
    pattern wins. A pattern with methods follows go-restful, for which "/pods/" equals "/pods"; a pattern without
    methods follows Go's ServeMux. The mux responds to a path that is not clean (`//`, `..`) with a redirect to its
    clean form, so that no handler sees such a path. It redirects in the same way when only the final slash is missing.

    DIVERGES (safer): this kubelet redirects a path whose slashes or dots were sent encoded (`%2e%2e`) to its clean
    form.
    Go: net/http/server.go, (*ServeMux).findHandler: the Go kubelet passes such a path to the handler unchanged.
    Why: a handler that turns the path into a file name might leave its directory.
    Test: mux_test.py:test_unclean_paths_are_redirected
    """

    def __init__(self) -> None:
        # The keys are the first parts of the paths.
        self._routes: dict[str, list[_Route]] = {}
        self._filters: list[Filter] = []

    def handle(self, pattern: str, handler: Handler, methods: Iterable[str] | None = None) -> None:
        """Register a handler for any method, or for the given methods.

        Raise ValueError for a pattern that no path can match.
        """
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
        """Wrap all responses except 404 in the filter. The filter that is added first is the outermost.

        The filter also sees requests with a wrong method.

        DIVERGES (safer): in this kubelet, the filters also see requests to which the mux responds with a redirect.
        Go: net/http/server.go, (*ServeMux).findHandler: the Go kubelet responds to these before the filters of
        go-restful, which authenticate the client.
        Why: the response repeats text of the client, and a client without credentials must get no response.
        Test: mux_test.py:test_filters_see_all_of_registered_paths_and_redirects
        """
        self._filters.append(added)

    def registered_paths(self) -> list[str]:
        """Return all patterns, sorted."""
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
                # A request with only a wrong method gets 405, even if a more general pattern would match.
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
    """Return the path without double slashes and dot segments; a final slash stays."""
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
