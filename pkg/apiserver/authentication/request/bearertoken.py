"""A token in the Authorization header.

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
        """Takes the token out of the request once it has served, so that nobody passes it on."""
        parts = request.headers.get("Authorization").strip().split(" ", 2)
        if len(parts) < 2 or parts[0].lower() != "bearer" or not parts[1]:
            return None
        response = self._auth.authenticate_token(request.ctx, parts[1])
        if response is None:
            raise authenticator.AuthenticationError("invalid bearer token")
        request.headers.delete("Authorization")
        return response
