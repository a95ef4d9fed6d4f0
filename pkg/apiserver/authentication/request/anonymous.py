"""Treat every client as the anonymous user.

Go: k8s.io/apiserver/pkg/authentication/request/anonymous/anonymous.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pkg.apiserver.authentication import authenticator
from pkg.apiserver.authentication import user as userinfo

if TYPE_CHECKING:
    from pkg.golang import http

_RESPONSE = authenticator.Response(userinfo.Info(userinfo.ANONYMOUS, groups=(userinfo.ALL_UNAUTHENTICATED,)))


class Authenticator:
    def authenticate_request(self, request: http.Request) -> authenticator.Response:
        return _RESPONSE
