"""Define what an authorizer is, and the attributes of a request.

Go: k8s.io/apiserver/pkg/authorization/authorizer/interfaces.go
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from pkg import golang
from pkg.apiserver.authentication import user as userinfo


class Decision(enum.IntEnum):
    DENY = 0
    ALLOW = 1
    NO_OPINION = 2


class AuthorizationError(Exception):
    """Signal that no decision could be made.

    The text is for the log, not for the client.
    """


@dataclass(frozen=True, slots=True)
class Attributes:
    """Describe who wants to do what.

    Go: AttributesRecord
    """

    user: userinfo.Info
    verb: str
    namespace: str = ""
    api_group: str = ""
    api_version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    resource_request: bool = False
    path: str = ""


class Authorizer(Protocol):
    def authorize(self, ctx: golang.Context, attributes: Attributes) -> tuple[Decision, str]:
        """Return the decision and its reason; raise AuthorizationError on failure.

        Any thread may call this method.
        """
        ...
