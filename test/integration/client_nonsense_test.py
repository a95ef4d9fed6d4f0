"""Each call of the API server is answered by nonsense: the kubelet lives, other pods go on, and all recovers."""

from __future__ import annotations

from framework import client_faults
from framework.client_calls import Call
from framework.client_faults import Kind, Round

KIND = Kind.NONSENSE


@client_faults.cases(KIND)
def test_call_that_is_answered_by_nonsense(client_round: Round, call: Call) -> None:
    client_round.check(call)
