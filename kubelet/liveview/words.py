"""Format values in words for people.

Go: none
"""

from __future__ import annotations


def spoken(seconds: float) -> str:
    """Return a duration as people say it, in at most two units."""
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 10:
        return f"{seconds:.1f}".rstrip("0").rstrip(".") + " s"
    total = round(seconds)
    for size, unit, smaller_size, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if total >= size:
            rest = total % size // smaller_size
            return f"{total // size} {unit} {rest} {smaller}" if rest else f"{total // size} {unit}"
    return f"{total} s"
