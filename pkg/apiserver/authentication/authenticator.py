"""What an authenticator is.

Go: k8s.io/apiserver/pkg/authentication/authenticator/interfaces.go

Tokens are not asked for an audience: a kubelet has none, it leaves that to the API server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pkg import golang
from pkg.apiserver.authentication import user as userinfo

if TYPE_CHECKING:
    from pkg.golang import http


class AuthenticationError(Exception):
    """Credentials were shown that are no good, or could not be judged. The text is for the log, not for the client."""


@dataclass(frozen=True, slots=True)
class Response:
    """Whose credentials were shown."""

    user: userinfo.Info


class Request(Protocol):
    def authenticate_request(self, request: http.Request) -> Response | None:
        """None if the request shows no credentials of the kind. From any thread.

        Raises AuthenticationError, and golang.ContextError when the client goes first.
        """
        ...


class Token(Protocol):
    def authenticate_token(self, ctx: golang.Context, token: str) -> Response | None:
        """None if the token is nobody's. Raises AuthenticationError, or golang.ContextError. From any thread."""
        ...
