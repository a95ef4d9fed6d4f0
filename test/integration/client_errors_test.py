"""Each call of the API server fails: the kubelet lives, other pods go on, and all recovers."""

from __future__ import annotations

from framework import client_faults
from framework.client_calls import Call
from framework.client_faults import Kind, Round

KIND = Kind.ERROR


@client_faults.cases(KIND)
def test_call_that_fails(client_round: Round, call: Call) -> None:
    client_round.check(call)


def test_calls_are_known(client_round: Round) -> None:
    """Also those that the source does not show."""
    assert not client_round.unknown_calls()
