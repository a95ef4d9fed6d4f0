"""Render the map from the Go sources as tables: counts by package, and docs/go-python-map.md."""

from __future__ import annotations

from collections import Counter

import go_map

TABLE = go_map.ROOT / "docs/go-python-map.md"


# The columns count the functions in each state, and the types and groups of constants that exist here.
COLUMNS = (*go_map.STATES, "types and constants")


def count_table(result: go_map.Map) -> list[tuple[str, ...]]:
    """Return a header, a row for each Go package and a total, all as text."""
    packages: dict[str, list[go_map.Row]] = {}
    for row in sorted(result.current(), key=lambda row: row.declaration.package):
        packages.setdefault(row.declaration.package, []).append(row)
    rows = [(package, *_counts(found)) for package, found in packages.items()]
    return [("Go package", *COLUMNS), *rows, ("all", *_counts(result.current()))]


def document(result: go_map.Map, tree: go_map.PythonTree) -> str:
    """Return docs/go-python-map.md: counts by package, and the Python counterpart of each Go file that has one."""
    header, *rows = count_table(result)
    lines = [_HEAD, _table_row(header), _table_row(["---"] + ["---:"] * len(COLUMNS)), *map(_table_row, rows)]
    lines += [_FILES, _table_row(("Go file", "Python", *COLUMNS)), _table_row(["---"] * 2 + ["---:"] * len(COLUMNS))]
    files: dict[tuple[str, str], list[go_map.Row]] = {}
    for row in result.current():
        files.setdefault((row.declaration.package, row.declaration.file), []).append(row)
    for (package, file), found in files.items():
        if main := counterpart(package, file, found, tree):
            link = f"[{main}](../{main})"
            lines.append(_table_row((f"`{package}/{file}`", link, *_counts(found))))
    return "\n".join(lines) + "\n"


def _counts(rows: list[go_map.Row]) -> tuple[str, ...]:
    """Return a cell for each of COLUMNS; the last is empty if Go has neither types nor constants."""
    functions = Counter(row.state for row in rows if row.declaration.is_function)
    others = [row for row in rows if not row.declaration.is_function]
    here = sum(row.state in ("present", "renamed") for row in others)
    return (*(str(functions[state]) for state in go_map.STATES), f"{here} of {len(others)}" if others else "")


def counterpart(package: str, file: str, rows: list[go_map.Row], tree: go_map.PythonTree) -> str | None:
    """Return the Python file with most functions of a Go file or, without functions, most of its types."""
    present = [row for row in rows if row.state == "present"]
    functions = [row for row in present if row.declaration.is_function]
    places = Counter(row.detail.split(":")[0] for row in functions or present)
    mirrored = [module.path for module in tree.mirrored(package, file)]
    return next(iter([path for path, _ in places.most_common(1)] or mirrored), None)


def _table_row(cells: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


_HEAD = """# From Go to Python, file by file

This page shows for each package and file of the Go kubelet v1.36.2 how much of it is here.
`hack/verify_go_map --update` writes the page, and `make verify` fails when it is out of date.

The tables count the functions and methods that Go declares for Linux under `pkg/kubelet`, `pkg/probe`, `pkg/volume` and
`cmd/kubelet`. They also count those of the packages of client-go, apimachinery, component-helpers, cri-client,
cri-streaming, streaming and mount-utils that [have a counterpart here](../hack/go-map/README.md). They leave out fakes
and generated code. The columns mean:

- **present**: the Python package of the same path has the function, under the same name in Python's spelling.
- **renamed**: the function has another name or place here.
- **absent**: the function is left out on purpose.
- **to come**: the function is planned, and an issue describes it.
- **types and constants**: how many of the types, interfaces and groups of constants are here, under the same or another
  name. This column covers only `pkg/kubelet`, `pkg/probe`, `pkg/volume` and `cmd/kubelet`.

`hack/verify_go_map --list WORD` prints where each of these is, or why it is not here. It also knows the names of
release 1.27 that are gone, and some older names that documents still mention.

## Packages
"""

_FILES = """
## Files

This table lists the Go files that have a counterpart here, with the Python file that holds most of it.
"""
