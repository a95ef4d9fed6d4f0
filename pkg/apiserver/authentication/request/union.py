"""Try several authenticators in order.

Go: k8s.io/apiserver/pkg/authentication/request/union/union.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pkg.apimachinery.util import errors as utilerrors
from pkg.apiserver.authentication import authenticator

if TYPE_CHECKING:
    from pkg.golang import http


class UnionAuthRequestHandler:
    """Return the result of the first authenticator that knows the user.

    With fail_on_error the first error is final. Otherwise errors are raised only if no authenticator knows the user.
    """

    def __init__(self, *handlers: authenticator.Request, fail_on_error: bool = False) -> None:
        self._handlers = handlers
        self._fail_on_error = fail_on_error

    def authenticate_request(self, request: http.Request) -> authenticator.Response | None:
        with utilerrors.collecting() as errors:
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
