"""Provide authorizers that ignore the request.

Go: k8s.io/apiserver/pkg/authorization/authorizerfactory/builtin.go
"""

from __future__ import annotations

from pkg import golang
from pkg.apiserver.authorization import authorizer


class AlwaysAllowAuthorizer:
    def authorize(self, ctx: golang.Context, attributes: authorizer.Attributes) -> tuple[authorizer.Decision, str]:
        return authorizer.Decision.ALLOW, ""
