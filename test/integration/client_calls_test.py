"""Each call of the API server has its cases: none is forgotten."""

from __future__ import annotations

from framework import client_calls, client_faults


def test_each_call_has_its_cases() -> None:
    calls, mentions = client_calls.find()
    assert mentions == client_faults.HANDED_ON.keys(), "clients that are handed on, and nobody knows for what"
    handed_on = {call for several in client_faults.HANDED_ON.values() for call in several}
    known = client_faults.TRIGGERS.keys() | client_faults.UNTRIED.keys()
    assert calls | handed_on | client_faults.DISCOVERY == known
