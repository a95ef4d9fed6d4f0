"""What tests have to know of the pytest processes that run them: with --numprocesses there are several at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from framework.containerd import ROOT

_KEY = "left_out"


def worker() -> str:
    """The name of this process among several; nothing if it is the only one."""
    return os.environ.get("PYTEST_XDIST_WORKER", "")


def logs_folder(suite: str) -> Path:
    """Where logs are kept of what failed; each process has its own."""
    return ROOT / ".build" / suite / worker()


class LeftOut:
    """A plugin that deselects tests of a directory that cannot run here, and says so, whichever process found out."""

    def __init__(self, directory: Path, reason: Callable[[pytest.Item], str]) -> None:
        """reason: why a test cannot run; nothing if it can."""
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
        # To the process that reports.
        output: dict[str, Any] = getattr(config, "workeroutput", {})
        output[_KEY] = [*output.get(_KEY, []), *self._lines]

    def pytest_report_collectionfinish(self) -> list[str]:
        return list(self._lines)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A process that ran tests has ended; it left out the same as all others."""
        lines: Sequence[str] = getattr(node, "workeroutput", {}).get(_KEY, [])
        self._lines.update(dict.fromkeys(lines))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """With several processes nothing was said when tests were collected."""
        if config.getoption("numprocesses", None):
            for line in self._lines:
                terminalreporter.write_line(line)


class SlowestFirst:
    """A plugin that puts files of a directory before all others of it, so that no process is left with them at the end.

    Processes begin files in this order with --no-loadscope-reorder.
    """

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        """names: the files, the slowest first. Raises FileNotFoundError for one that is not there."""
        self._ranks = {(directory / name).resolve(strict=True): rank for rank, name in enumerate(names)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self._ranks.get(item.path, len(self._ranks)))
