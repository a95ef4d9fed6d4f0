"""Test plugin calls with a nonsensical response: the kubelet and other pods survive, and the pod recovers."""

from __future__ import annotations

import os

import pytest
from framework import plugin_faults
from framework.faults import Kind
from framework.plugin_faults import Round, Who

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
KINDS = [Kind.NONSENSE]


@plugin_faults.cases(KINDS)
def test_call_that_is_answered_by_nonsense(plugin_round: Round, method: str, who: Who, kind: Kind) -> None:
    plugin_round.check(method, who, kind)
