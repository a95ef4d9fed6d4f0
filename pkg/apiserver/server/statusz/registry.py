"""Collect what the page shows.

Go: k8s.io/apiserver/pkg/server/statusz/registry.go
"""

from __future__ import annotations

import datetime
import platform
from collections.abc import Sequence

from pkg.component_base import version
from pkg.component_base.metrics import processstarttime


class Registry:
    # DIVERGES (platform): the Go version on the page /statusz is the version of Python.
    # Go: k8s.io/apiserver/pkg/server/statusz/registry.go, (*registry).goVersion: it is the version of Go.
    # Why: this process contains no Go, and readers of the page want to know the language runtime.
    # Test: pkg/apiserver/server/zpage_test.py:test_structured
    go_version = f"{platform.python_implementation()} {platform.python_version()}"

    def __init__(self, listed_paths: Sequence[str] = ()) -> None:
        started = processstarttime.process_start_time()
        self.process_start_time = datetime.datetime.fromtimestamp(int(started), datetime.UTC)
        self.paths = list(listed_paths)

    @property
    def binary_version(self) -> str:
        """Return the version as three numbers."""
        return version.GIT_VERSION.removeprefix("v").partition("-")[0]

    @property
    def emulation_version(self) -> str:
        """Return the release whose behaviour is emulated, as two numbers."""
        return ".".join(self.binary_version.split(".")[:2])
