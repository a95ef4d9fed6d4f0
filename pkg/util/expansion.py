"""$(VAR) references in commands, arguments and environment values.

Go: third_party/forked/golang/expansion/expand.go
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

# An escaped operator, or a reference.
_TOKEN = re.compile(r"\$(?:(\$)|\(([^)]*)\))", re.DOTALL)


def mapping_func_for(*context: Mapping[str, str]) -> Callable[[str], str]:
    """A mapping for `expand`: the value from the first dict that has the name, else the reference itself."""

    def mapping(name: str) -> str:
        for variables in context:
            if name in variables:
                return variables[name]
        return f"$({name})"

    return mapping


def expand(text: str, mapping: Callable[[str], str]) -> str:
    """Replace each $(NAME) by mapping(NAME) and each $$ by $; anything else stays, an unclosed $( too."""
    return _TOKEN.sub(lambda match: "$" if match[1] else mapping(match[2]), text)
