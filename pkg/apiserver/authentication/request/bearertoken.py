"""Authenticate a request by the token in its Authorization header.

Go: k8s.io/apiserver/pkg/authentication/request/bearertoken/bearertoken.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pkg.apiserver.authentication import authenticator

if TYPE_CHECKING:
    from pkg.golang import http


class Authenticator:
    def __init__(self, auth: authenticator.Token) -> None:
        self._auth = auth

    def authenticate_request(self, request: http.Request) -> authenticator.Response | None:
        """Return the token's user, and remove a valid token from the request, so that no handler can forward it."""
        parts = request.headers.get("Authorization").strip().split(" ", 2)
        if len(parts) < 2 or parts[0].lower() != "bearer" or not parts[1]:
            return None
        response = self._auth.authenticate_token(request.ctx, parts[1])
        if response is None:
            raise authenticator.AuthenticationError("invalid bearer token")
        request.headers.delete("Authorization")
        return response
