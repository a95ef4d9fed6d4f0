"""Adapt pytest to several processes (--numprocesses): name them, and report and order their tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from framework.containerd import ROOT

_KEY = "left_out"


def worker() -> str:
    """Return the name of this process among several, or "" if it is the only one."""
    return os.environ.get("PYTEST_XDIST_WORKER", "")


def logs_folder(suite: str) -> Path:
    """Return the directory for the logs of failed tests. Each process has its own."""
    return ROOT / ".build" / suite / worker()


class LeftOut:
    """Deselect tests of a directory that cannot run here, and report them, whichever process found the reason."""

    def __init__(self, directory: Path, reason: Callable[[pytest.Item], str]) -> None:
        """Create the plugin. `reason` returns why a test cannot run, or "" if it can."""
        self._directory = directory
        self._reason = reason
        self._lines: dict[str, None] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        ours = [item for item in items if item.path.is_relative_to(self._directory)]
        reasons = {item: reason for item in ours if (reason := self._reason(item))}
        if not reasons:
            return
        items[:] = [item for item in items if item not in reasons]
        config.hook.pytest_deselected(items=list(reasons))
        self._lines = {f"left out: {item.nodeid}: {reason}": None for item, reason in reasons.items()}
        # The process that prints the report receives this dict.
        output: dict[str, Any] = getattr(config, "workeroutput", {})
        output[_KEY] = [*output.get(_KEY, []), *self._lines]

    def pytest_report_collectionfinish(self) -> list[str]:
        return list(self._lines)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Collect the report of a process that ran tests. All processes leave out the same tests."""
        lines: Sequence[str] = getattr(node, "workeroutput", {}).get(_KEY, [])
        self._lines.update(dict.fromkeys(lines))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """Report the tests at the end, because with several processes pytest prints no report after the collection."""
        if config.getoption("numprocesses", None):
            for line in self._lines:
                terminalreporter.write_line(line)


class SlowestFirst:
    """Put certain files of a directory before all others, so that none of them is still running at the end.

    With --no-loadscope-reorder, the processes start files in this order.
    """

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        """Create the plugin. `names` are the files, the slowest first. Raise FileNotFoundError for a missing one."""
        self._ranks = {(directory / name).resolve(strict=True): rank for rank, name in enumerate(names)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self._ranks.get(item.path, len(self._ranks)))
