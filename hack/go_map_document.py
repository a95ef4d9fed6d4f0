"""The map from the Go sources as tables: counts by package, and docs/go-python-map.md."""

from __future__ import annotations

from collections import Counter

import go_map

TABLE = go_map.ROOT / "docs/go-python-map.md"


def count_table(result: go_map.Map) -> list[tuple[str, ...]]:
    """A header, a row for each Go package and a sum, all as text."""
    counts = {state: result.counts(state) for state in go_map.STATES}
    packages = sorted({row.function.package for row in result.current()})
    rows = [(package, *(str(counts[state][package]) for state in go_map.STATES)) for package in packages]
    total = ("all", *(str(sum(counts[state].values())) for state in go_map.STATES))
    return [("Go package", *go_map.STATES), *rows, total]


def document(result: go_map.Map, tree: go_map.PythonTree) -> str:
    """docs/go-python-map.md: counts by package, and for each Go file with a counterpart where that is."""
    header, *rows = count_table(result)
    lines = [_HEAD, _table_row(header), _table_row(["---"] + ["---:"] * (len(header) - 1)), *map(_table_row, rows)]
    lines += [_FILES, _table_row(("Go file", "Python", *go_map.STATES)), _table_row(["---"] * 2 + ["---:"] * 4)]
    files: dict[tuple[str, str], list[go_map.Row]] = {}
    for row in result.current():
        files.setdefault((row.function.package, row.function.file), []).append(row)
    for (package, file), found in files.items():
        states = Counter(row.state for row in found)
        places = Counter(row.detail.split(":")[0] for row in found if row.state == "present")
        mirrored = [module.path for module in tree.mirrored(package, file)]
        main = [path for path, _ in places.most_common(1)] or mirrored[:1]
        if main:
            link = f"[{main[0]}](../{main[0]})"
            lines.append(_table_row((f"`{package}/{file}`", link, *(str(states[state]) for state in go_map.STATES))))
    return "\n".join(lines) + "\n"


def _table_row(cells: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


_HEAD = """# From Go to Python, file by file

Written by `hack/verify_go_map --update`; `make verify` fails when it is out of date.

Each function and method that Go's v1.36.2 declares under `pkg/kubelet`, `pkg/probe`, `pkg/volume` and `cmd/kubelet`
for Linux is counted once, and so are those of the packages of client-go, apimachinery, component-helpers, cri-client,
cri-streaming, streaming and mount-utils that [have a counterpart here](../hack/go-map/README.md); fakes and generated
code are left out:

- **present**: the Python package of the same path has it, under the same name in Python's spelling.
- **renamed**: it has another name or place here.
- **absent**: it is left out on purpose.
- **to come**: an issue will bring it.

`hack/verify_go_map --list WORD` prints where each function is, or why it is not, and knows those of 1.27 that are no
more.

## Packages
"""

_FILES = """
## Files

Go files that have a counterpart, with the Python file that holds most of it.
"""
