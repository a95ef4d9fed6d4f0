"""Extend Sphinx: add the pages of source code, direct links to source files to them, and write the index of names.

Sphinx itself builds the documents. The setting `side_by_side_go` names a checkout of Kubernetes; without one, the pages
name the Go declarations and do not show them.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from posixpath import normpath, relpath
from typing import Any

import divergences
import go_map
from docutils import nodes
from modules import ROOT
from sphinx.application import Sphinx
from sphinx.util import logging

from sidebyside import calls, go_source, pairs
from sidebyside.highlight import GO, PYTHON, Link, highlight, lexer_for
from sidebyside.pairs import Place

_SCHEME = "code:"
# The pattern matches a link in a document to a file of the tree. The groups are its text, its path and its fragment.
_LINK = re.compile(r"\[(?P<text>[^\]\[]*)\]\((?P<path>(?![a-z]+:|#)[^)#\s]+)(?P<fragment>#[^)\s]*)?\)")
_NAME = re.compile(r"`([A-Za-z_][\w.]*)(?:\(\))?`")
# A picture is a block without a language that has lines or arrows; the names in it become links.
_PICTURE_SIGNS = ("─", "→")
_NAME_IN_PICTURE = re.compile(r"[A-Za-z_][\w.]*\w")
# The page of a larger file does not show its source, because browsers scroll such a page badly.
_LARGEST_FILE = 500_000
# With these words the index of names marks the declarations that 1.36 no longer has.
_GONE = {"1.27": "gone since 1.27", "older": "gone before 1.27"}
_STATES = {"present": "here", "renamed": "renamed", "absent": "left out", "to come": "to come"}
_logger = logging.getLogger(__name__)

Context = dict[str, Any]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension. Sphinx calls this function."""
    app.add_config_value("side_by_side_go", "", "html")
    builder = Builder(app)
    app.connect("source-read", builder.point_links_at_code)
    app.connect("doctree-resolved", builder.resolve_links_to_code)
    app.connect("doctree-resolved", builder.link_pictures)
    app.connect("html-collect-pages", builder.pages)
    # This handler must run before that of the theme, which asks for the table of contents.
    app.connect("html-page-context", builder.share_table_of_contents, priority=100)
    app.connect("build-finished", builder.write_names)
    return {"parallel_read_safe": False, "parallel_write_safe": False}


class Builder:
    """Handle the events of one run of Sphinx."""

    def __init__(self, app: Sphinx) -> None:
        self._app = app
        self._site = pairs.Site()
        # The set has the files that documents link to, except the product's Python files.
        self._linked: set[str] = set()
        self._tables_of_contents: dict[tuple[int, str], str] = {}

    @property
    def _checkout(self) -> Path | None:
        given = self._app.config.side_by_side_go
        return Path(given) if given else None

    # ---- Links in documents ----

    def point_links_at_code(self, app: Sphinx, docname: str, source: list[str]) -> None:
        """Change links to source files to a scheme of our own, because MyST leaves such links unchanged."""
        folder = str(Path(docname).parent)
        source[0] = _LINK.sub(partial(self._pointed_at_code, folder), source[0])

    def _pointed_at_code(self, folder: str, found: re.Match[str]) -> str:
        path = normpath(f"{folder}/{found['path']}")
        target = ROOT / path
        if path.endswith((".md", ".png")) or path.startswith("..") or not target.exists():
            return found[0]
        if target.is_dir() and (document := target / "README.md").exists():
            return f"[{found['text']}]({found['path'].rstrip('/')}/{document.name})"
        name = _NAME.fullmatch(found["text"])
        return f"[{found['text']}]({_SCHEME}{path}#{name[1] if name else (found['fragment'] or '')[1:]})"

    def resolve_links_to_code(self, app: Sphinx, doctree: nodes.document, docname: str) -> None:
        """Turn links with our scheme into addresses of pages."""
        for reference in doctree.findall(nodes.reference):
            address = reference.get("refuri", "")
            if address.startswith(_SCHEME):
                path, _, fragment = address.removeprefix(_SCHEME).partition("#")
                reference["refuri"] = href(docname, self._place_of(path, fragment, docname))
                reference["internal"] = True

    def link_pictures(self, app: Sphinx, doctree: nodes.document, docname: str) -> None:
        """Link each name in a picture to the page of the definition with that name."""
        for block in list(doctree.findall(nodes.literal_block)):
            text = block.astext()
            if block.get("language") in (None, "default", "none") and any(sign in text for sign in _PICTURE_SIGNS):
                linked = _NAME_IN_PICTURE.sub(partial(self._linked_name, docname), html.escape(text, quote=False))
                markup = f'<div class="picture highlight"><pre>{linked}</pre></div>'
                block.replace_self(nodes.raw("", markup, format="html"))

    def _linked_name(self, docname: str, found: re.Match[str]) -> str:
        place = self._site.place_of_short_name(found[0])
        if place is None:
            return found[0]
        return f'<a href="{html.escape(href(docname, place))}">{found[0]}</a>'

    def _place_of(self, path: str, name: str, docname: str) -> Place:
        if re.fullmatch(r"L\d+", name) and path.endswith(".py"):
            name = self._name_at(path, int(name[1:]))
        if any(each.startswith(f"{path}/") for each in self._site.paths):
            return Place(f"{pairs.FOLDER}/index", path)
        if (place := self._site.place_of(path, name)) is not None:
            return place
        if self._site.place_of(path, "") is not None:
            _logger.warning("%s: the link names %s in %s, which does not define it", docname, name, path)
        self._linked.add(path)
        return Place(f"{pairs.FOLDER}/{path}")

    def _name_at(self, path: str, line: int) -> str:
        pieces = self._site.file(path).pieces
        return next((piece.name for piece in pieces if piece.first <= line <= piece.last), "")

    # ---- Pages ----

    def share_table_of_contents(
        self, app: Sphinx, pagename: str, templatename: str, context: Context, doctree: nodes.document | None
    ) -> None:
        """Share one table of contents among all code pages at the same depth, because Sphinx creates it slowly."""
        if doctree is not None or "toctree" not in context:
            return
        make = context["toctree"]

        def toctree(**options: Any) -> str:
            key = (pagename.count("/"), repr(options))
            if key not in self._tables_of_contents:
                self._tables_of_contents[key] = make(**options)
            return self._tables_of_contents[key]

        context["toctree"] = toctree

    def pages(self, app: Sphinx) -> Iterator[tuple[str, Context, str]]:
        """Yield the name, the context and the template of each page that is not a document."""
        yield "index", {"target": f"{app.config.root_doc}.html"}, "redirect.html"
        yield f"{pairs.FOLDER}/index", self._contents(), "contents.html"
        for path in self._site.paths:
            yield pairs.page_name(path), self._pair_page(path), "pair.html"
        for package in self._packages():
            yield pairs.package_page(package), self._package_page(package), "package.html"
        yield from self._file_pages()

    def _packages(self) -> list[str]:
        return sorted({row.declaration.package for row in self._site.map.rows})

    def _contents(self) -> Context:
        folders: dict[str, list[tuple[str, str]]] = {}
        page = f"{pairs.FOLDER}/index"
        for path in self._site.paths:
            folder, _, name = path.rpartition("/")
            folders.setdefault(folder, []).append((name, href(page, Place(pairs.page_name(path)))))
        go = [(package, href(page, Place(pairs.package_page(package)))) for package in self._packages()]
        return {"title": "Every file, beside Go", "folders": folders, "packages": go}

    def _pair_page(self, path: str) -> Context:
        page = self._site.page(path)
        name = pairs.page_name(path)
        links = self._python_links(path)
        rows = [self._pair_row(name, path, pair, links) for pair in page.pairs]
        rest = [self._go_row(name, pair) for pair in page.only_in_go]
        go_paths = [(each, href(name, Place(pairs.package_page(each.rpartition("/")[0])))) for each in page.go_paths]
        return {"title": path, "go_paths": go_paths, "rows": rows, "rest": rest, "with_go": self._checkout is not None}

    def _pair_row(self, page: str, path: str, pair: pairs.Pair, links: list[Link]) -> Context:
        piece = pair.piece
        assert piece is not None
        file = self._site.file(path)
        start, text = file.text_of(piece)
        inside = [
            Link(link.start - start, link.end - start, link.href, link.title)
            for link in links
            if start <= link.start and link.end <= start + len(text)
        ]
        return {
            "anchor": pairs.anchor_of(piece),
            "name": piece.name,
            "line": piece.first,
            "python": highlight(text, PYTHON, inside) if text else "",
            "go": self._go_cells(page, pair.go),
            "why": pair.why,
            "callers": [(caller, self._address(page, path, caller)) for path, caller in pair.callers[:5]],
            "records": [self._record(page, each) for each in pair.records],
        }

    def _address(self, page: str, path: str, name: str) -> str:
        place = self._site.place_of(path, name)
        return href(page, place) if place else ""

    def _go_row(self, page: str, pair: pairs.Pair) -> Context:
        elsewhere = None
        if pair.elsewhere is not None and (place := self._site.place_of(*pair.elsewhere)) is not None:
            elsewhere = (pair.elsewhere[0], pair.elsewhere[1], href(page, place))
        own = self._site.place_of_row(pair.go[0]).page == page
        return {"go": self._go_cells(page, pair.go, own), "why": pair.why, "elsewhere": elsewhere}

    def _go_cells(self, page: str, rows: list[go_map.Row], anchored: bool = True) -> list[Context]:
        cells = []
        for row in rows:
            cell: Context = {
                "anchor": pairs.go_anchor(row) if anchored else "",
                "title": row.declaration.title,
                "path": row.declaration.path,
                "package": href(page, Place(pairs.package_page(row.declaration.package), pairs.go_anchor(row))),
                "note": pairs.note_of(row),
                "new": row.declaration.only_in == "1.36",
            }
            if self._checkout is not None and (file := go_source.read(self._checkout, row.declaration.path)):
                piece = file.find(pairs.go_names(row)[0])
                if piece is not None:
                    cell["line"] = piece.first
                    cell["source"] = highlight(file.text(piece), GO, self._go_links(page, file, piece))
            cells.append(cell)
        return cells

    def _python_links(self, path: str) -> list[Link]:
        found = self._site.python_calls.calls(path)
        places = [self._site.place_of(call.target.path, call.target.name) for call in found]
        return _links(pairs.page_name(path), found, places)

    def _go_links(self, page: str, file: go_source.GoFile, piece: go_source.Piece) -> list[Link]:
        found = self._site.go_calls.calls(file, piece)
        return _links(page, found, [self._site.go_places[call.target.path, call.target.name] for call in found])

    def _record(self, page: str, record: divergences.Divergence) -> Context:
        return {"record": record, "list": href(page, Place("docs/divergences"))}

    def _package_page(self, package: str) -> Context:
        name = pairs.package_page(package)
        rows = []
        for row in self._site.map.rows:
            if row.declaration.package != package:
                continue
            gone = row.declaration.is_gone
            own = not gone and self._site.place_of_row(row).page == name
            target = pairs.target_of(row)
            place = self._site.place_of(*target) if target else None
            rows.append(
                {
                    "anchor": pairs.go_anchor(row),
                    "file": row.declaration.file,
                    "title": row.declaration.whole_title,
                    "state": _STATES.get(row.state, row.state),
                    "gone": _GONE.get(row.declaration.only_in, ""),
                    "target": target and ": ".join(filter(None, target)),
                    "href": href(name, place) if place else "",
                    "why": pairs.note_of(row) if target else row.detail,
                    "go": self._go_cells(name, [row], anchored=False) if own else [],
                }
            )
        return {"title": package, "rows": rows, "with_go": self._checkout is not None}

    def _file_pages(self) -> Iterator[tuple[str, Context, str]]:
        """Yield a page for each other file that a document links to; a folder's page lists its content."""
        for path in sorted(self._linked):
            target, name = ROOT / path, f"{pairs.FOLDER}/{path}"
            context: Context = {"title": path}
            if target.is_dir():
                context["entries"] = sorted(
                    each.name for each in target.iterdir() if not each.name.startswith((".", "_"))
                )
            elif target.stat().st_size <= _LARGEST_FILE:
                context["source"] = highlight(target.read_text(), lexer_for(target.name), [])
            yield name, context, "file.html"

    # ---- The index of names ----

    def write_names(self, app: Sphinx, error: Exception | None) -> None:
        """Write the names for the search as a script, because a page opened from a file may load nothing else."""
        if error is not None:
            return
        names = [*self._python_names(), *self._go_names()]
        text = json.dumps(names, separators=(",", ":"))
        (Path(app.outdir) / "_static/names.js").write_text(f"window.sideBySideNames = {text};\n")

    def _python_names(self) -> Iterator[tuple[str, str, str, str]]:
        for path in self._site.paths:
            for piece in self._site.file(path).pieces:
                if piece.name and piece.names:
                    yield piece.name, path, f"{pairs.page_name(path)}.html#{pairs.anchor_of(piece)}", "Python"

    def _go_names(self) -> Iterator[tuple[str, str, str, str]]:
        for row in self._site.map.rows:
            gone = _GONE.get(row.declaration.only_in, "")
            page = pairs.package_page(row.declaration.package)
            place = Place(page, pairs.go_anchor(row)) if gone else self._site.place_of_row(row)
            for name in pairs.go_names(row):
                yield name, row.declaration.path, f"{place.page}.html#{place.anchor}", f"Go, {gone}" if gone else "Go"


def _links(page: str, found: list[calls.Call], places: Sequence[Place | None]) -> list[Link]:
    """Return a link from a page for each call whose place is known."""
    return [
        Link(call.start, call.end, href(page, place), f"{call.target.path}: {call.target.name}")
        for call, place in zip(found, places, strict=True)
        if place is not None
    ]


def href(page: str, place: Place) -> str:
    """Return the address of a place, relative to the page that links to it."""
    fragment = f"#{place.anchor}" if place.anchor else ""
    return relpath(f"{place.page}.html", str(Path(page).parent)) + fragment
