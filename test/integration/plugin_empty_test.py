"""Each call of a plugin is answered by an empty message: the kubelet lives, other pods go on, and the pod recovers."""

from __future__ import annotations

import os

import pytest
from framework import plugin_faults
from framework.faults import Kind
from framework.plugin_faults import FaultyNode, Story, Who

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts, which takes root")


@plugin_faults.cases(Kind.EMPTY)
def test_call_that_is_answered_by_nothing(plugins: FaultyNode, method: str, who: Who, kind: Kind) -> None:
    Story(plugins, method, who, kind).run()
