"""Define fixtures for tests of several parts of the kubelet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubelet.testing import TestKubelet


@pytest.fixture
def test_kubelet(tmp_path: Path) -> Iterator[TestKubelet]:
    """Provide a kubelet of fakes with its root directory in tmp_path. A file that needs more overrides this fixture."""
    made = TestKubelet(tmp_path)
    yield made
    made.close()
