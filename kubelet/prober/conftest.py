"""Define the fixture that tests of probes share."""

from __future__ import annotations

import pytest

from kubelet.prober.testing import ProbeWorld


@pytest.fixture
def world() -> ProbeWorld:
    return ProbeWorld()
