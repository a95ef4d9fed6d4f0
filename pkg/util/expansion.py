"""$(VAR) references in commands, arguments and environment values.

Go: third_party/forked/golang/expansion/expand.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping


class TooLongError(ValueError):
    """What a text expands to is longer than it may be."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the expanded text has more than {limit} bytes")


def mapping_func_for(*context: Mapping[str, str]) -> Callable[[str], str]:
    """A mapping for `expand`: the value from the first dict that has the name, else the reference itself."""

    def mapping(name: str) -> str:
        for variables in context:
            if name in variables:
                return variables[name]
        return f"$({name})"

    return mapping


def expand(text: str, mapping: Callable[[str], str], limit: int) -> str:
    """Replace each $(NAME) by mapping(NAME) and each $$ by $; anything else stays, an unclosed $( too.

    Raises TooLongError for a result of more than `limit` bytes.

    DIVERGES (safer): a result of more than `limit` bytes is an error.
    Go: third_party/forked/golang/expansion/expand.go, Expand: has no bound.
    Why: eight variables of which each refers ten times to the one before it make 100 MiB.
    Test: expansion_test.py:test_limit_counts_bytes
    """
    pieces: list[str] = []
    length = 0
    for piece in _pieces(text, mapping):
        length += len(piece)
        if length > limit:
            raise TooLongError(limit)
        pieces.append(piece)
    expanded = "".join(pieces)
    # An estimate by characters was enough to stop in time; the kernel counts bytes.
    if len(expanded.encode(errors="surrogatepass")) > limit:
        raise TooLongError(limit)
    return expanded


def _pieces(text: str, mapping: Callable[[str], str]) -> Iterator[str]:
    """The expanded text in pieces, none of them empty but for values that are."""
    done = 0
    last_close = text.rfind(")")
    while (start := text.find("$", done)) >= 0:
        if text.startswith("$$", start):
            yield text[done : start + 1]
            done = start + 2
        elif text.startswith("$(", start) and start < last_close:
            yield text[done:start]
            end = text.index(")", start)
            yield mapping(text[start + 2 : end])
            done = end + 1
        else:
            yield text[done : start + 1]
            done = start + 1
    yield text[done:]
