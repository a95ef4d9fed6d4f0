"""Each call of a plugin hangs until its deadline: the kubelet lives, other pods go on, and the pod recovers."""

from __future__ import annotations

import os

import pytest
from framework import plugin_faults
from framework.faults import Kind
from framework.plugin_faults import FaultyNode, Story, Who

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts, which takes root")


@plugin_faults.cases(Kind.HANG)
def test_call_that_hangs(plugins: FaultyNode, method: str, who: Who, kind: Kind) -> None:
    Story(plugins, method, who, kind).run()
