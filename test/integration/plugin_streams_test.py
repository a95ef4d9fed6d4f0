"""Test plugin streams that fail: the kubelet and other pods survive, and the pod recovers."""

from __future__ import annotations

import os

import pytest
from framework import plugin_faults
from framework.plugin_faults import Round, StreamKind, Who

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
KINDS = list(StreamKind)


@plugin_faults.cases(KINDS)
def test_call_that_streams_wrongly(plugin_round: Round, method: str, who: Who, kind: StreamKind) -> None:
    plugin_round.check(method, who, kind)
