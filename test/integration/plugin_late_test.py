"""Each call of a plugin is done and answered after its deadline: the kubelet lives, and the pod recovers."""

from __future__ import annotations

import os

import pytest
from framework import plugin_faults
from framework.faults import Kind
from framework.plugin_faults import FaultyNode, Story, Who

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts, which takes root")


@plugin_faults.cases(Kind.LATE)
def test_call_that_is_answered_late(plugins: FaultyNode, method: str, who: Who, kind: Kind) -> None:
    Story(plugins, method, who, kind).run()
