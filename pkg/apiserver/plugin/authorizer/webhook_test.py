"""Test access reviews by the API server."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pytest

from pkg import golang
from pkg.api.authorization import v1 as authorizationv1
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.clock.testing import FakeClock
from pkg.apimachinery.util import wait
from pkg.apiserver.authentication import user as userinfo
from pkg.apiserver.authorization import authorizer
from pkg.apiserver.plugin.authorizer import webhook
from pkg.client_go.kubernetes.testing import FakeClientset

CTX = golang.background()
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
Status = authorizationv1.SubjectAccessReviewStatus

JOE = userinfo.Info("joe", "1", ("a", "b"), {"x": ("y",)})
ATTRIBUTES = authorizer.Attributes(
    JOE, "get", api_version="v1", resource="nodes", subresource="proxy", name="n", resource_request=True, path="/p"
)


class Reviewed:
    """Hold an authorizer and its fake API server, whose response is `answer`."""

    def __init__(self) -> None:
        self.answer: Any = Status(allowed=True)
        self.client = FakeClientset()
        self.client.prepend_reactor("create", "subjectaccessreviews", self._react)
        self.clock = FakeClock(START)
        self.recorded: list[str] = []
        self.authorizer = webhook.WebhookAuthorizer(
            self.client.authorization_v1.subject_access_reviews(),
            60.0,
            5.0,
            wait.Backoff(duration=0.0, steps=3),
            lambda code, seconds: self.recorded.append(code),
            self.clock,
        )

    def _react(self, action: Any) -> tuple[bool, Any]:
        if isinstance(self.answer, Exception):
            return True, self.answer
        return True, authorizationv1.SubjectAccessReview(spec=action.object.spec, status=self.answer)

    def ask(self, **changes: Any) -> tuple[authorizer.Decision, str]:
        return self.authorizer.authorize(CTX, dataclasses.replace(ATTRIBUTES, **changes))

    @property
    def asked(self) -> int:
        return len(self.client.actions("create", "subjectaccessreviews"))


@pytest.mark.parametrize(
    ("status", "decision"),
    [
        (Status(allowed=True, reason="r"), authorizer.Decision.ALLOW),
        (Status(allowed=False, reason="r"), authorizer.Decision.NO_OPINION),
        (Status(denied=True, reason="r"), authorizer.Decision.DENY),
    ],
)
def test_decisions(status: Status, decision: authorizer.Decision) -> None:
    reviewed = Reviewed()
    reviewed.answer = status
    assert reviewed.ask() == (decision, "r")
    assert reviewed.recorded == ["201"]


def test_what_is_asked() -> None:
    reviewed = Reviewed()
    reviewed.ask()
    reviewed.ask(resource_request=False)
    resource, other = [action.object.spec for action in reviewed.client.actions()]
    assert (resource.user, resource.uid, resource.groups, resource.extra) == ("joe", "1", ["a", "b"], {"x": ["y"]})
    assert resource.resource_attributes == authorizationv1.ResourceAttributes(
        verb="get", version="v1", resource="nodes", subresource="proxy", name="n"
    )
    assert other.resource_attributes is None
    assert other.non_resource_attributes == authorizationv1.NonResourceAttributes(path="/p", verb="get")


def test_both_allowed_and_denied() -> None:
    reviewed = Reviewed()
    reviewed.answer = Status(allowed=True, denied=True)
    with pytest.raises(authorizer.AuthorizationError, match="both allow and deny"):
        reviewed.ask()


def test_decisions_are_kept_for_their_time() -> None:
    reviewed = Reviewed()
    for _ in range(2):
        reviewed.ask()
    assert reviewed.asked == 1
    reviewed.answer = Status(allowed=False)
    reviewed.ask(verb="create")
    reviewed.clock.step(6)
    assert reviewed.ask()[0] == authorizer.Decision.ALLOW
    assert reviewed.asked == 2
    reviewed.ask(verb="create")
    assert reviewed.asked == 3
    reviewed.clock.step(61)
    assert reviewed.ask()[0] == authorizer.Decision.NO_OPINION


def test_the_path_of_a_resource_request_makes_no_difference() -> None:
    reviewed = Reviewed()
    for path in ("/stats/a", "/stats/b"):
        reviewed.ask(path=path)
    assert reviewed.asked == 1


def test_what_is_very_long_is_not_kept() -> None:
    reviewed = Reviewed()
    for _ in range(2):
        reviewed.ask(path="/" + "x" * 10000)
    assert reviewed.asked == 2


@pytest.mark.parametrize(
    ("err", "codes"),
    [
        (apierrors.new_forbidden("subjectaccessreviews", "", "no"), ["403"]),
        (apierrors.new_internal_error("etcd is away"), ["500"] * 3),
        (ConnectionRefusedError("connection refused"), ["<error>"]),
    ],
    ids=str,
)
def test_no_answer(err: Exception, codes: list[str]) -> None:
    reviewed = Reviewed()
    reviewed.answer = err
    with pytest.raises(authorizer.AuthorizationError):
        reviewed.ask()
    assert reviewed.recorded == codes
    reviewed.answer = Status(allowed=True)
    assert reviewed.ask()[0] == authorizer.Decision.ALLOW
