"""Test API server calls that are refused with code 200: the kubelet and other pods survive, and everything recovers."""

from __future__ import annotations

from framework import client_faults
from framework.client_calls import Call
from framework.client_faults import Round
from framework.faulty_call import Kind

KIND = Kind.STATUS


@client_faults.cases(KIND)
def test_call_that_is_answered_by_a_refusal(client_round: Round, call: Call) -> None:
    client_round.check(call)


def test_what_was_asked_is_known(client_round: Round) -> None:
    assert not client_round.unknown_calls()
