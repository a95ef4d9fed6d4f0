"""Run `kubelet config explain`: show every effective value and its source.

DIVERGES (preference: kubelet config explain): the command shows the effective configuration.
Go: cmd/kubelet/app/server.go, NewKubeletCommand: the Go kubelet has no such command.
Why: files, drop-ins, flags and defaults form one configuration, which the Go kubelet shows only in its log or while it
runs.
Test: test/programs/kubelet_test.py:test_explain
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from kubelet.apis.config import scheme
from pkg import features

from . import supported
from .configuration import DEFAULT, FEATURE_GATES, Loaded, gate_source, leaves

TABLE, JSON = "table", "json"

_MASKED = "<masked>"
_PASSED_OVER = "(ignored)"
_NO_EFFECT = "(no effect)"


class Row(NamedTuple):
    """Describe one row of the output. Flags begin with "--", feature gates with "featureGates."."""

    field: str
    value: Any
    source: str


def explain(loaded: Loaded) -> list[Row]:
    """Return rows for the ignored settings, the configuration fields, the other flags, and all feature gates."""
    return [*_passed_over(loaded), *_no_effect(loaded), *_fields(loaded), *_flags(loaded), *_gates(loaded)]


def render(rows: list[Row], output: str) -> str:
    """Return the rows as a table or as JSON."""
    if output == JSON:
        return json.dumps([row._asdict() for row in rows], indent=2) + "\n"
    cells = [("FIELD", "VALUE", "SOURCE"), *((row.field, _text(row.value), row.source) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in (0, 1)]
    # One long value must not push the sources off the screen.
    widths[1] = min(widths[1], 60)
    return "".join(f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c}".rstrip() + "\n" for a, b, c in cells)


def _passed_over(loaded: Loaded) -> Iterator[Row]:
    for fault, source in loaded.passed_over:
        yield Row(_PASSED_OVER, fault, source)


def _no_effect(loaded: Loaded) -> Iterator[Row]:
    for path, source, reason in supported.set_in_vain(loaded):
        yield Row(_NO_EFFECT, f"{path}: {reason}", source)


def _fields(loaded: Loaded) -> Iterator[Row]:
    document = scheme.to_versioned(loaded.kubelet_configuration)
    del document[FEATURE_GATES]
    # The headers may contain credentials.
    document["staticPodURLHeader"] = dict.fromkeys(document["staticPodURLHeader"], _MASKED)
    for path, value in leaves(document):
        yield Row(path, value, loaded.sources.of(path))


def _flags(loaded: Loaded) -> Iterator[Row]:
    own = type(loaded.kubelet_flags)()
    probe = type(loaded.flag_set)()
    own.add_flags(probe)
    for known in probe:
        flag = loaded.flag_set.lookup(known.name)
        if flag is not None:
            yield Row(f"--{flag.name}", flag.value.string(), f"flag --{flag.name}" if flag.changed else DEFAULT)


def _gates(loaded: Loaded) -> Iterator[Row]:
    for name in sorted(features.feature_gate.get_all()):
        yield Row(f"{FEATURE_GATES}.{name}", features.feature_gate.enabled(name), gate_source(loaded, name))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
