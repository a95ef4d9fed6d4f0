"""Each stream of a plugin goes wrong: the kubelet lives, other pods go on, and the pod recovers."""

from __future__ import annotations

import os

import pytest
from framework import plugin_faults
from framework.plugin_faults import FaultyNode, Story, StreamKind, Who

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts, which takes root")


@plugin_faults.cases(*StreamKind)
def test_call_that_streams_wrongly(plugins: FaultyNode, method: str, who: Who, kind: StreamKind) -> None:
    Story(plugins, method, who, kind).run()
