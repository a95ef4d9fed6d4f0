"""Several authenticators, asked in order.

Go: k8s.io/apiserver/pkg/authentication/request/union/union.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pkg.apiserver.authentication import authenticator

if TYPE_CHECKING:
    from pkg.golang import http


class UnionAuthRequestHandler:
    """The first that knows the user decides.

    fail_on_error: the first error decides too; else it counts only if nobody knows the user.
    """

    def __init__(self, *handlers: authenticator.Request, fail_on_error: bool = False) -> None:
        self._handlers = handlers
        self._fail_on_error = fail_on_error

    def authenticate_request(self, request: http.Request) -> authenticator.Response | None:
        errors: list[authenticator.AuthenticationError] = []
        try:
            return self._first_known(request, errors)
        finally:
            # An error that is raised has its frames, and with them the request. A way back from a frame to the error
            # would keep a mebibyte of somebody whom nobody knows until garbage is collected.
            errors.clear()

    def _first_known(
        self, request: http.Request, errors: list[authenticator.AuthenticationError]
    ) -> authenticator.Response | None:
        for handler in self._handlers:
            try:
                response = handler.authenticate_request(request)
            except authenticator.AuthenticationError as err:
                if self._fail_on_error:
                    raise
                errors.append(err)
                continue
            if response is not None:
                return response
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise authenticator.AuthenticationError(f"[{', '.join(map(str, errors))}]") from errors[0]
        return None
