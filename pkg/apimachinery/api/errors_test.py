"""Test the API server's errors."""

from __future__ import annotations

import pytest

from pkg.apimachinery.api import errors
from pkg.apimachinery.apis.meta import v1 as metav1


@pytest.mark.parametrize(
    ("status", "not_found", "conflict", "throttled"),
    [
        (metav1.Status(reason="NotFound", code=404), True, False, False),
        (metav1.Status(code=404), True, False, False),
        (metav1.Status(reason="NewReason", code=409), False, True, False),
        (metav1.Status(reason="AlreadyExists", code=409), False, False, False),
        (metav1.Status(reason="Conflict"), False, True, False),
        (metav1.Status(reason="BadRequest", code=429), False, False, True),
    ],
)
def test_questions(status: metav1.Status, not_found: bool, conflict: bool, throttled: bool) -> None:
    wrapper = RuntimeError("around it")
    wrapper.__cause__ = errors.from_status(status)
    for err in (errors.from_status(status), wrapper):
        assert errors.is_not_found(err) is not_found
        assert errors.is_conflict(err) is conflict
        assert errors.is_too_many_requests(err) is throttled


@pytest.mark.parametrize(
    ("code", "verb", "reason", "message"),
    [
        (404, "GET", "NotFound", "the server could not find the requested resource (get pods x)"),
        (409, "POST", "AlreadyExists", "the server reported a conflict (post pods x)"),
        (409, "PUT", "Conflict", "the server reported a conflict (put pods x)"),
        (401, "GET", "Unauthorized", "the server has asked for the client to provide credentials (get pods x)"),
        (403, "GET", "Forbidden", "said (get pods x)"),
        (503, "GET", "ServiceUnavailable", "the server is currently unable to handle the request (get pods x)"),
        (502, "GET", "InternalError", 'an error on the server ("said") has prevented the request from succeeding'),
        (300, "GET", "", "the server responded with the status code 300 but did not return more information"),
    ],
)
def test_generic_server_response(code: int, verb: str, reason: str, message: str) -> None:
    err = errors.new_generic_server_response(code, verb, "pods", "x", "said", 3)
    assert (err.code, err.reason) == (code, reason)
    assert str(err).startswith(message)
    assert errors.is_unexpected_server_error(err)
    assert errors.suggests_client_delay(err) == 3.0


def test_other_errors_are_none() -> None:
    assert not errors.is_not_found(ValueError("x"))
    assert errors.reason_for_error(ValueError("x")) == ""
    assert errors.suggests_client_delay(ValueError("x")) is None


def test_what_is_not_found() -> None:
    wrapper = RuntimeError("around it")
    wrapper.__cause__ = ExceptionGroup("", [OSError(), errors.new_not_found("secret", "smtp")])
    found = errors.what_is_not_found(wrapper)
    assert found is not None and (found.kind, found.name) == ("secret", "smtp")


@pytest.mark.parametrize("err", [None, OSError(), errors.new_conflict("secret", "smtp", "")], ids=repr)
def test_error_of_what_is_there(err: Exception | None) -> None:
    assert errors.what_is_not_found(err) is None
