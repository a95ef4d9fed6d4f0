"""Expand $(VAR) references in commands, arguments and environment values.

Go: third_party/forked/golang/expansion/expand.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping


class TooLongError(ValueError):
    """Signal that the expanded text is longer than allowed."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the expanded text has more than {limit} bytes")


def mapping_func_for(*context: Mapping[str, str]) -> Callable[[str], str]:
    """Return a mapping for `expand`: the value from the first dict that has the name, or else the reference itself."""

    def mapping(name: str) -> str:
        for variables in context:
            if name in variables:
                return variables[name]
        return f"$({name})"

    return mapping


def expand(text: str, mapping: Callable[[str], str], limit: int) -> str:
    """Replace each $(NAME) with mapping(NAME) and each $$ with $. Other text stays, including an unclosed $(.

    Raise TooLongError if the result has more than `limit` bytes.

    DIVERGES (safer): in this kubelet, a result of more than `limit` bytes is an error.
    Go: third_party/forked/golang/expansion/expand.go, Expand: the Go kubelet has no bound.
    Why: eight variables that each refer ten times to the previous one expand to 100 MiB.
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
    # The count of characters is enough to stop early, but the kernel counts bytes.
    if len(expanded.encode(errors="surrogatepass")) > limit:
        raise TooLongError(limit)
    return expanded


def _pieces(text: str, mapping: Callable[[str], str]) -> Iterator[str]:
    """Yield the expanded text in pieces. A piece is empty only if a value is empty."""
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
