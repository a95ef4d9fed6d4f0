"""Test plugin calls that fail: the kubelet and other pods survive, and the pod recovers."""

from __future__ import annotations

import os

import pytest
from framework import faulty_plugins, plugin_faults
from framework.faults import Kind
from framework.plugin_faults import Round, Who

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
KINDS = [Kind.ERROR]


@plugin_faults.cases(KINDS)
def test_call_that_fails(plugin_round: Round, method: str, who: Who, kind: Kind) -> None:
    plugin_round.check(method, who, kind)


def test_each_call_has_its_cases() -> None:
    known = {**plugin_faults.TRIGGERS, **plugin_faults.STREAMS}.keys() | plugin_faults.UNUSED
    assert {faulty_plugins.full_name(method) for method in faulty_plugins.methods()} == known
    streams = {faulty_plugins.full_name(method) for method in faulty_plugins.methods() if method.server_streaming}
    assert streams == plugin_faults.STREAMS.keys()
