"""What tests of several parts of the kubelet start from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubelet.testing import TestKubelet


@pytest.fixture
def test_kubelet(tmp_path: Path) -> Iterator[TestKubelet]:
    """A kubelet of fakes that has its root directory in tmp_path. A file that wants more of it overrides this one."""
    made = TestKubelet(tmp_path)
    yield made
    made.close()
