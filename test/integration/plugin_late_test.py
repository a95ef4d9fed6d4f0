"""Each call of a plugin is done and answered after its deadline: the kubelet lives, and the pod recovers."""

from __future__ import annotations

import os

import pytest
from framework import plugin_faults
from framework.faults import Kind
from framework.plugin_faults import Round, Who

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts, which takes root")
KINDS = [Kind.LATE]


@plugin_faults.cases(KINDS)
def test_call_that_is_answered_late(plugin_round: Round, method: str, who: Who, kind: Kind) -> None:
    plugin_round.check(method, who, kind)
