"""Represent the errors of the API server, and classify them.

Go: k8s.io/apimachinery/pkg/api/errors/errors.go
"""

from __future__ import annotations

from pkg.apimachinery.apis.meta import v1 as metav1

# These are the reasons of a Status. Go: apis/meta/v1/types.go
REASON_UNKNOWN = ""
REASON_UNAUTHORIZED = "Unauthorized"
REASON_FORBIDDEN = "Forbidden"
REASON_NOT_FOUND = "NotFound"
REASON_ALREADY_EXISTS = "AlreadyExists"
REASON_CONFLICT = "Conflict"
REASON_GONE = "Gone"
REASON_INVALID = "Invalid"
REASON_SERVER_TIMEOUT = "ServerTimeout"
REASON_TIMEOUT = "Timeout"
REASON_TOO_MANY_REQUESTS = "TooManyRequests"
REASON_BAD_REQUEST = "BadRequest"
REASON_METHOD_NOT_ALLOWED = "MethodNotAllowed"
REASON_NOT_ACCEPTABLE = "NotAcceptable"
REASON_REQUEST_ENTITY_TOO_LARGE = "RequestEntityTooLarge"
REASON_UNSUPPORTED_MEDIA_TYPE = "UnsupportedMediaType"
REASON_INTERNAL_ERROR = "InternalError"
REASON_EXPIRED = "Expired"
REASON_SERVICE_UNAVAILABLE = "ServiceUnavailable"

CAUSE_RESOURCE_VERSION_TOO_LARGE = "ResourceVersionTooLarge"
CAUSE_UNEXPECTED_SERVER_RESPONSE = "UnexpectedServerResponse"

# `_REASONS` maps a status code to the reason that is used when a Status has none.
_REASONS = {
    400: REASON_BAD_REQUEST,
    401: REASON_UNAUTHORIZED,
    403: REASON_FORBIDDEN,
    404: REASON_NOT_FOUND,
    405: REASON_METHOD_NOT_ALLOWED,
    406: REASON_NOT_ACCEPTABLE,
    409: REASON_CONFLICT,
    410: REASON_GONE,
    413: REASON_REQUEST_ENTITY_TOO_LARGE,
    415: REASON_UNSUPPORTED_MEDIA_TYPE,
    422: REASON_INVALID,
    429: REASON_TOO_MANY_REQUESTS,
    500: REASON_INTERNAL_ERROR,
    503: REASON_SERVICE_UNAVAILABLE,
    504: REASON_TIMEOUT,
}


class StatusError(Exception):
    """Signal that the API server responded with an error."""

    def __init__(self, status: metav1.Status) -> None:
        super().__init__(status.message)
        self.status = status

    def __str__(self) -> str:
        return self.status.message or f"unknown error (code {self.status.code})"

    @property
    def code(self) -> int:
        return self.status.code

    @property
    def reason(self) -> str:
        return self.status.reason


def _status_error(code: int, reason: str, message: str, details: metav1.StatusDetails | None = None) -> StatusError:
    return StatusError(
        metav1.Status(
            api_version="v1",
            kind="Status",
            status="Failure",
            code=code,
            reason=reason,
            message=message,
            details=details,
        )
    )


def _details(resource: str, name: str) -> metav1.StatusDetails:
    """Return details for a resource, whose name may include its group, as in leases.coordination.k8s.io."""
    kind, _, group = resource.partition(".")
    return metav1.StatusDetails(kind=kind, group=group, name=name)


def new_not_found(resource: str, name: str) -> StatusError:
    return _status_error(404, REASON_NOT_FOUND, f'{resource} "{name}" not found', _details(resource, name))


def new_already_exists(resource: str, name: str) -> StatusError:
    return _status_error(409, REASON_ALREADY_EXISTS, f'{resource} "{name}" already exists', _details(resource, name))


def new_conflict(resource: str, name: str, err: object) -> StatusError:
    message = f'Operation cannot be fulfilled on {resource} "{name}": {err}'
    return _status_error(409, REASON_CONFLICT, message, _details(resource, name))


def new_unauthorized(message: str) -> StatusError:
    return _status_error(401, REASON_UNAUTHORIZED, message or "not authorized")


def new_forbidden(resource: str, name: str, err: object) -> StatusError:
    subject = f'{resource} "{name}" is forbidden' if name else f"{resource} is forbidden"
    return _status_error(403, REASON_FORBIDDEN, f"{subject}: {err}", _details(resource, name))


def new_gone(message: str) -> StatusError:
    return _status_error(410, REASON_GONE, message)


def new_resource_expired(message: str) -> StatusError:
    return _status_error(410, REASON_EXPIRED, message)


def new_bad_request(message: str) -> StatusError:
    return _status_error(400, REASON_BAD_REQUEST, message)


def new_invalid(kind: str, name: str, err: object) -> StatusError:
    return _status_error(422, REASON_INVALID, f'{kind} "{name}" is invalid: {err}', _details(kind, name))


def new_too_many_requests(message: str, retry_after_seconds: int) -> StatusError:
    details = metav1.StatusDetails(retry_after_seconds=retry_after_seconds)
    return _status_error(429, REASON_TOO_MANY_REQUESTS, message, details)


def new_service_unavailable(message: str) -> StatusError:
    return _status_error(503, REASON_SERVICE_UNAVAILABLE, message)


def new_internal_error(err: object) -> StatusError:
    details = metav1.StatusDetails(causes=[metav1.StatusCause(message=str(err))])
    return _status_error(500, REASON_INTERNAL_ERROR, f"Internal error occurred: {err}", details)


def new_timeout_error(message: str, retry_after_seconds: int) -> StatusError:
    details = metav1.StatusDetails(retry_after_seconds=retry_after_seconds)
    return _status_error(504, REASON_TIMEOUT, f"Timeout: {message}", details)


def new_server_timeout(resource: str, operation: str, retry_after_seconds: int) -> StatusError:
    kind, _, group = resource.partition(".")
    details = metav1.StatusDetails(kind=kind, group=group, name=operation, retry_after_seconds=retry_after_seconds)
    message = f"The {operation} operation against {resource} could not be completed at this time, please try again."
    return _status_error(500, REASON_SERVER_TIMEOUT, message, details)


def new_method_not_supported(resource: str, action: str) -> StatusError:
    message = f'{action} is not supported on resources of kind "{resource}"'
    return _status_error(405, REASON_METHOD_NOT_ALLOWED, message, _details(resource, ""))


# `_GENERIC` maps a status code to the reason and the message for a response that cannot be parsed. The message is empty
# for codes where only the server's own text helps.
_GENERIC = {
    400: (REASON_BAD_REQUEST, "the server rejected our request for an unknown reason"),
    401: (REASON_UNAUTHORIZED, "the server has asked for the client to provide credentials"),
    403: (REASON_FORBIDDEN, ""),
    404: (REASON_NOT_FOUND, "the server could not find the requested resource"),
    405: (REASON_METHOD_NOT_ALLOWED, "the server does not allow this method on the requested resource"),
    406: (REASON_NOT_ACCEPTABLE, ""),
    409: (REASON_CONFLICT, "the server reported a conflict"),
    415: (REASON_UNSUPPORTED_MEDIA_TYPE, ""),
    422: (REASON_INVALID, "the server rejected our request due to an error in our request"),
    429: (
        REASON_TOO_MANY_REQUESTS,
        "the server has received too many requests and has asked us to try again later",
    ),
    503: (REASON_SERVICE_UNAVAILABLE, "the server is currently unable to handle the request"),
    504: (
        REASON_TIMEOUT,
        "the server was unable to return a response in the time allotted, but may still be processing the request",
    ),
}


def new_generic_server_response(
    code: int, verb: str, resource: str, name: str, server_message: str, retry_after_seconds: int
) -> StatusError:
    """Return the error for a response that is not a Status, with the meaning of its code and the failed request."""
    unknown = f"the server responded with the status code {code} but did not return more information"
    reason, message = _GENERIC.get(code, (REASON_UNKNOWN, unknown))
    if code >= 500 and not reason:
        reason = REASON_INTERNAL_ERROR
        message = f'an error on the server ("{server_message}") has prevented the request from succeeding'
    if code == 409 and verb == "POST":
        reason = REASON_ALREADY_EXISTS
    message = message or server_message
    if resource:
        asked = " ".join(part for part in (verb.lower(), resource, name) if part)
        message = f"{message} ({asked})"
    details = _details(resource, name)
    details.causes = [metav1.StatusCause(reason=CAUSE_UNEXPECTED_SERVER_RESPONSE, message=server_message)]
    details.retry_after_seconds = retry_after_seconds
    return _status_error(code, reason, message, details)


def from_status(status: metav1.Status) -> StatusError:
    """Return the error for a Status object, which may come from a watch."""
    return StatusError(status)


def status_of(err: BaseException) -> metav1.Status | None:
    """Return the Status of the error or of one of its causes, or None if none is an error of the API server."""
    seen: BaseException | None = err
    while seen is not None:
        if isinstance(seen, StatusError):
            return seen.status
        seen = seen.__cause__
    return None


def what_is_not_found(err: BaseException | None) -> metav1.StatusDetails | None:
    """Return the kind and name of the object that was not found.

    The function searches the error, its causes and its parts. Return None if no object is missing.

    Go: none
    """
    if err is None:
        return None
    if isinstance(err, StatusError):
        return err.status.details if is_not_found(err) else None
    parts = (*(err.exceptions if isinstance(err, BaseExceptionGroup) else ()), err.__cause__)
    return next((found for part in parts if (found := what_is_not_found(part)) is not None), None)


def reason_for_error(err: BaseException) -> str:
    """Return the reason of an API server's error, or "" for another error."""
    status = status_of(err)
    if status is None:
        return REASON_UNKNOWN
    return status.reason or _REASONS.get(status.code, REASON_UNKNOWN)


def _is(err: BaseException, reason: str, code: int) -> bool:
    """Report whether the error has this reason, or this code if its reason is unknown."""
    status = status_of(err)
    if status is None:
        return False
    return status.reason == reason or (status.code == code and status.reason not in _KNOWN)


_KNOWN = frozenset(_REASONS.values()) | {REASON_ALREADY_EXISTS, REASON_EXPIRED, REASON_SERVER_TIMEOUT}


def is_not_found(err: BaseException) -> bool:
    return _is(err, REASON_NOT_FOUND, 404)


def is_already_exists(err: BaseException) -> bool:
    return reason_for_error(err) == REASON_ALREADY_EXISTS


def is_conflict(err: BaseException) -> bool:
    return _is(err, REASON_CONFLICT, 409)


def is_invalid(err: BaseException) -> bool:
    return _is(err, REASON_INVALID, 422)


def is_gone(err: BaseException) -> bool:
    return _is(err, REASON_GONE, 410)


def is_resource_expired(err: BaseException) -> bool:
    return reason_for_error(err) == REASON_EXPIRED


def is_bad_request(err: BaseException) -> bool:
    return _is(err, REASON_BAD_REQUEST, 400)


def is_unauthorized(err: BaseException) -> bool:
    return _is(err, REASON_UNAUTHORIZED, 401)


def is_forbidden(err: BaseException) -> bool:
    return _is(err, REASON_FORBIDDEN, 403)


def is_timeout(err: BaseException) -> bool:
    return _is(err, REASON_TIMEOUT, 504)


def is_server_timeout(err: BaseException) -> bool:
    return reason_for_error(err) == REASON_SERVER_TIMEOUT


def is_internal_error(err: BaseException) -> bool:
    return _is(err, REASON_INTERNAL_ERROR, 500)


def is_service_unavailable(err: BaseException) -> bool:
    return _is(err, REASON_SERVICE_UNAVAILABLE, 503)


def is_too_many_requests(err: BaseException) -> bool:
    # An overloaded server may respond with the code only.
    status = status_of(err)
    return status is not None and (status.reason == REASON_TOO_MANY_REQUESTS or status.code == 429)


def is_too_large_resource_version(err: BaseException) -> bool:
    """Report whether the server's state is older than the requested resource version."""
    return has_status_cause(err, CAUSE_RESOURCE_VERSION_TOO_LARGE)


def is_unexpected_server_error(err: BaseException) -> bool:
    """Report whether the response was not a Status, so that perhaps not an API server sent it."""
    return has_status_cause(err, CAUSE_UNEXPECTED_SERVER_RESPONSE)


def has_status_cause(err: BaseException, reason: str) -> bool:
    status = status_of(err)
    if status is None or status.details is None:
        return False
    return any(cause.reason == reason for cause in status.details.causes)


def suggests_client_delay(err: BaseException) -> float | None:
    """Return the delay, in seconds, that the server requests before the next attempt, or None if it requests none."""
    status = status_of(err)
    if status is None or status.details is None:
        return None
    seconds = status.details.retry_after_seconds
    if seconds > 0 or status.reason in (REASON_SERVER_TIMEOUT, REASON_TOO_MANY_REQUESTS):
        return float(seconds)
    return None
