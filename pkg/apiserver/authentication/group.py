"""Add a group to all authenticated users.

Go: k8s.io/apiserver/pkg/authentication/group/authenticated_group_adder.go
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pkg.apiserver.authentication import authenticator
from pkg.apiserver.authentication import user as userinfo

if TYPE_CHECKING:
    from pkg.golang import http


class AuthenticatedGroupAdder:
    """Add users to system:authenticated.

    Exceptions are the anonymous user, and users who are already in this group or in system:unauthenticated.
    """

    def __init__(self, auth: authenticator.Request) -> None:
        self._auth = auth

    def authenticate_request(self, request: http.Request) -> authenticator.Response | None:
        response = self._auth.authenticate_request(request)
        if response is None or response.user.name == userinfo.ANONYMOUS:
            return response
        user = response.user
        if userinfo.ALL_AUTHENTICATED in user.groups or userinfo.ALL_UNAUTHENTICATED in user.groups:
            return response
        groups = (*user.groups, userinfo.ALL_AUTHENTICATED)
        return dataclasses.replace(response, user=dataclasses.replace(user, groups=groups))
