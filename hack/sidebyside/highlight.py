"""Write source code as HTML, coloured by Pygments, with links on the names that are called."""

from __future__ import annotations

import html
from dataclasses import dataclass

from pygments.lexer import Lexer
from pygments.lexers import GoLexer, PythonLexer, TextLexer, get_lexer_for_filename
from pygments.token import STANDARD_TYPES, _TokenType
from pygments.util import ClassNotFound

GO, PYTHON = GoLexer(), PythonLexer()


@dataclass(frozen=True, slots=True)
class Link:
    """Link the characters from `start` up to `end` to an address; `title` is what a browser shows on hovering."""

    start: int
    end: int
    href: str
    title: str


def lexer_for(filename: str) -> Lexer:
    """Return the lexer that fits a file's name, or one that adds no colours."""
    try:
        lexer: Lexer = get_lexer_for_filename(filename)
    except ClassNotFound:
        lexer = TextLexer()
    return lexer


def highlight(text: str, lexer: Lexer, links: list[Link]) -> str:
    """Return the text as HTML for a `pre` element with the class `highlight`. Links must not overlap."""
    starts = {link.start: link for link in links}
    parts = []
    for start, kind, value in lexer.get_tokens_unprocessed(text):
        body = html.escape(value, quote=False)
        if (link := starts.get(start)) is not None and link.end == start + len(value):
            body = f'<a href="{html.escape(link.href)}" title="{html.escape(link.title)}">{body}</a>'
        name = _css_class(kind)
        parts.append(f'<span class="{name}">{body}</span>' if name and value.strip() else body)
    return "".join(parts)


def _css_class(kind: _TokenType) -> str:
    while kind not in STANDARD_TYPES:
        kind = kind.parent  # type: ignore[assignment]
    return STANDARD_TYPES[kind]
