"""Define what an authenticator is.

Go: k8s.io/apiserver/pkg/authentication/authenticator/interfaces.go

Tokens are not checked for an audience, because the kubelet has none and leaves that to the API server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pkg import golang
from pkg.apiserver.authentication import user as userinfo

if TYPE_CHECKING:
    from pkg.golang import http


class AuthenticationError(Exception):
    """Signal that credentials are invalid, or could not be checked.

    The text is for the log, not for the client.
    """


@dataclass(frozen=True, slots=True)
class Response:
    """Hold the user to whom the credentials belong."""

    user: userinfo.Info


class Request(Protocol):
    def authenticate_request(self, request: http.Request) -> Response | None:
        """Return the user, or None if the request carries no credentials of this authenticator's kind.

        Any thread may call this method. Raise AuthenticationError on failure, and golang.ContextError when the client
        disconnects first.
        """
        ...


class Token(Protocol):
    def authenticate_token(self, ctx: golang.Context, token: str) -> Response | None:
        """Return the token's user, or None if the token is unknown.

        Any thread may call this method. Raise AuthenticationError or golang.ContextError on failure.
        """
        ...
