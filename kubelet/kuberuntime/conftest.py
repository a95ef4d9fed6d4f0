"""Define the fixture that tests of the runtime manager share."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubelet.kuberuntime import testing


@pytest.fixture
def fake(tmp_path: Path) -> testing.TestRuntime:
    """Return a runtime manager with a fake runtime."""
    return testing.create_test_runtime_manager(str(tmp_path))
