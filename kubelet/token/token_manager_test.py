"""Test the token manager.

Go: pkg/kubelet/token/token_manager_test.go
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from kubelet import token
from pkg.api.authentication import v1 as authenticationv1
from pkg.apimachinery import types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as testingclock
from pkg.client_go.kubernetes.testing import FakeClientset


class _World:
    def __init__(self, lifetime: int = 3600) -> None:
        self.clock = testingclock.FakeClock()
        self.manager = token.Manager(None, self.clock)
        self.manager._get_token = self._get
        self.lifetime = lifetime
        self.count = 0
        self.err: Exception | None = None

    def _get(self, name: str, namespace: str, request: authenticationv1.TokenRequest) -> authenticationv1.TokenRequest:
        if self.err is not None:
            raise self.err
        self.count += 1
        expires = self.clock.now() + timedelta(seconds=self.lifetime)
        spec = authenticationv1.TokenRequestSpec(
            bound_object_ref=request.spec.bound_object_ref, expiration_seconds=self.lifetime
        )
        status = authenticationv1.TokenRequestStatus(token=str(self.count), expiration_timestamp=expires)
        return authenticationv1.TokenRequest(spec=spec, status=status)

    def token(self, name: str = "sa", pod: str = "u", uid: str = "", audience: str = "a") -> str:
        bound = authenticationv1.BoundObjectReference(uid=types.UID(pod))
        spec = authenticationv1.TokenRequestSpec(audiences=[audience], bound_object_ref=bound)
        request = authenticationv1.TokenRequest(metadata=metav1.ObjectMeta(uid=types.UID(uid)), spec=spec)
        return self.manager.get_service_account_token("ns", name, request).status.token


@pytest.mark.parametrize(
    ("lifetime", "age", "refreshed"),
    [
        (3600, 0, False),
        (3600, 3600 * 0.8 - 11, False),
        (3600, 3600 * 0.8 + 1, True),
        (10 * 86400, 86400 - 11, False),
        (10 * 86400, 86400 + 1, True),
    ],
)
def test_refresh(lifetime: int, age: float, refreshed: bool) -> None:
    world = _World(lifetime)
    assert world.token() == "1"
    world.clock.step(age)
    assert world.token() == ("2" if refreshed else "1")


def test_old_token_does_until_it_expires() -> None:
    world = _World()
    assert world.token() == "1"
    world.err = RuntimeError("down")
    world.clock.step(3500)
    assert world.token() == "1"
    world.clock.step(50)
    assert world.token() == "1"
    # The next call may already have dropped the token, but in either case there is none.
    world.clock.step(51)
    with pytest.raises(token.TokenError, match="down"):
        world.token()


@pytest.mark.parametrize("seconds", [2**63 - 1, -(2**63), 0])
def test_lifetime_of_no_sense(seconds: int) -> None:
    world = _World()

    def get(name: str, namespace: str, request: authenticationv1.TokenRequest) -> authenticationv1.TokenRequest:
        answer = world._get(name, namespace, request)
        answer.spec.expiration_seconds = seconds
        return answer

    world.manager._get_token = get
    assert world.token() == "1"
    assert world.token() in ("1", "2")


def test_every_part_of_the_request_counts() -> None:
    world = _World()
    assert [world.token(), world.token("b"), world.token(pod="v"), world.token(uid="x"), world.token(audience="b")] == [
        "1",
        "2",
        "3",
        "4",
        "5",
    ]
    assert world.token() == "1"


def test_deleted_pod_and_expired_tokens_are_forgotten() -> None:
    world = _World()
    world.token(pod="u")
    world.token(pod="v")
    world.manager.delete_service_account_token(types.UID("u"))
    assert world.token(pod="u") == "3"
    world.clock.step(4000)
    world.token(pod="w")
    assert len(world.manager._cache) == 1


def test_standalone() -> None:
    manager = token.Manager(None, testingclock.FakeClock())
    with pytest.raises(token.TokenError, match=r"failed to fetch token: cannot use TokenManager .* standalone mode"):
        manager.get_service_account_token("ns", "sa", authenticationv1.TokenRequest())


def test_account_that_is_not_there() -> None:
    client = FakeClientset()
    missing = apierrors.new_not_found("serviceaccounts", "sa")
    client.prepend_reactor("create", "serviceaccounts/token", lambda action: (True, missing))
    manager = token.Manager(client, testingclock.FakeClock())
    with pytest.raises(token.TokenError, match=r'^failed to fetch token: serviceaccounts "sa" not found$'):
        manager.get_service_account_token("ns", "sa", authenticationv1.TokenRequest())


@pytest.mark.parametrize(
    "status",
    [
        authenticationv1.TokenRequestStatus(),
        authenticationv1.TokenRequestStatus(token="t"),
        authenticationv1.TokenRequestStatus(expiration_timestamp=testingclock.FakeClock().now() + timedelta(hours=1)),
    ],
    ids=["nothing", "no end", "no token"],
)
def test_answer_without_a_token(status: authenticationv1.TokenRequestStatus) -> None:
    """A response without a token is not cached, and the next attempt gets the token."""
    client = FakeClientset()
    clock = testingclock.FakeClock()
    good = authenticationv1.TokenRequestStatus(token="good", expiration_timestamp=clock.now() + timedelta(hours=1))
    answers = [authenticationv1.TokenRequest(status=each) for each in (status, good)]
    client.prepend_reactor("create", "serviceaccounts/token", lambda action: (True, answers.pop(0)))
    manager = token.Manager(client, clock)
    with pytest.raises(token.TokenError, match="responded without a token"):
        manager.get_service_account_token("ns", "sa", authenticationv1.TokenRequest())
    assert manager.get_service_account_token("ns", "sa", authenticationv1.TokenRequest()).status.token == "good"
