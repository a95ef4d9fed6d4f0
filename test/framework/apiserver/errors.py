"""Build the Status objects of refused requests, with upstream's messages.

Go: k8s.io/apimachinery/pkg/api/errors/errors.go
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pkg import klog
from pkg.apimachinery.util.validation import field


class ApiError(Exception):
    """Signal that the server refuses a request. `status` is the Status object and `code` its HTTP code."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        *,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}
        self.list_continue = ""

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.list_continue} if self.list_continue else {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if not self.reason:
            del status["reason"]
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def qualified(resource: str, group: str) -> str:
    """Return a resource's name in messages, such as pods or leases.coordination.k8s.io."""
    return f"{resource}.{group}" if group else resource


def _details(resource: str, group: str, name: str) -> dict[str, Any]:
    details = {"name": name, "group": group, "kind": resource}
    return {key: value for key, value in details.items() if value}


def not_found(resource: str, group: str, name: str) -> ApiError:
    message = f'{qualified(resource, group)} "{name}" not found'
    return ApiError(404, "NotFound", message, _details(resource, group, name))


def already_exists(resource: str, group: str, name: str) -> ApiError:
    message = f'{qualified(resource, group)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(resource, group, name))


def conflict(resource: str, group: str, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {qualified(resource, group)} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(resource, group, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def forbidden(resource: str, group: str, name: str, why: str) -> ApiError:
    if not resource and not group:
        message = f"forbidden: {why}"
    elif name:
        message = f'{qualified(resource, group)} "{name}" is forbidden: {why}'
    else:
        message = f"{qualified(resource, group)} is forbidden: {why}"
    return ApiError(403, "Forbidden", message, _details(resource, group, name))


def unauthorized(message: str = "Unauthorized") -> ApiError:
    return ApiError(401, "Unauthorized", message)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


_CAUSES = {
    field.ErrorType.NOT_FOUND: "FieldValueNotFound",
    field.ErrorType.REQUIRED: "FieldValueRequired",
    field.ErrorType.DUPLICATE: "FieldValueDuplicate",
    field.ErrorType.INVALID: "FieldValueInvalid",
    field.ErrorType.NOT_SUPPORTED: "FieldValueNotSupported",
    field.ErrorType.FORBIDDEN: "FieldValueForbidden",
    field.ErrorType.TOO_LONG: "FieldValueTooLong",
    field.ErrorType.TOO_MANY: "FieldValueTooMany",
}


def invalid(kind: str, group: str, name: str, errs: Sequence[field.Error]) -> ApiError:
    """Return error 422 with a cause for each invalid field. `kind` is the kind, not the resource, as in Go."""
    causes = [{"reason": _CAUSES[err.type], "message": err.error_body(), "field": err.field} for err in errs]
    texts = list(dict.fromkeys(str(err) for err in errs))
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = _details(kind, group, name) | {"causes": causes}
    return ApiError(422, "Invalid", f'{qualified(kind, group)} "{name}" is invalid: {joined}', details)


def method_not_supported(resource: str, group: str, action: str) -> ApiError:
    message = f'{action} is not supported on resources of kind "{qualified(resource, group)}"'
    return ApiError(405, "MethodNotAllowed", message, _details(resource, group, ""))


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def too_large_resource_version(current: int, wanted: int) -> ApiError:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return ApiError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {wanted}, current: {current}",
        {"causes": [cause], "retryAfterSeconds": 1},
    )


def not_acceptable(supported: Sequence[str]) -> ApiError:
    message = f"only the following media types are accepted: {', '.join(supported)}"
    return ApiError(406, "NotAcceptable", message)


def unsupported_media_type(supported: Sequence[str]) -> ApiError:
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(supported)
    return ApiError(415, "UnsupportedMediaType", message)


def too_many_requests(message: str, retry_after: int) -> ApiError:
    return ApiError(
        429,
        "TooManyRequests",
        message,
        {"retryAfterSeconds": retry_after} if retry_after else {},
        headers={"Retry-After": str(retry_after)} if retry_after else None,
    )


def internal_error(message: str) -> ApiError:
    causes = [{"message": message}]
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", {"causes": causes})


def service_unavailable(message: str) -> ApiError:
    return ApiError(503, "ServiceUnavailable", message)


_SERVER_RESPONSES = {
    401: ("Unauthorized", "the server has asked for the client to provide credentials"),
    404: ("NotFound", "the server could not find the requested resource"),
    405: ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
    422: ("Invalid", "the server rejected our request due to an error in our request"),
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
}


def server_response(code: int, resource: str, name: str, text: str) -> ApiError:
    """Return the refusal of another server for a pod of the core group.

    Go: NewGenericServerResponse
    """
    if code in _SERVER_RESPONSES:
        reason, message = _SERVER_RESPONSES[code]
    elif code == 403:
        reason, message = "Forbidden", text
    elif code >= 500:
        reason = "InternalError"
        message = f"an error on the server ({klog.quote(text)}) has prevented the request from succeeding"
    else:
        reason = "Unknown"
        message = f"the server responded with the status code {code} but did not return more information"
    # Go has the verb before the resource, but here it is empty.
    return ApiError(code, reason, f"{message} ( {resource} {name})", _details(resource, "", name))
