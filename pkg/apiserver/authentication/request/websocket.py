"""Authenticate a request by the token among its WebSocket subprotocols.

Browsers cannot send the token in another header.

Go: k8s.io/apiserver/pkg/authentication/request/websocket/protocol.go
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from pkg.apimachinery.util.httpstream import wsstream
from pkg.apiserver.authentication import authenticator

if TYPE_CHECKING:
    from pkg.golang import http

_BEARER_PROTOCOL_PREFIX = "base64url.bearer.authorization.k8s.io."


class ProtocolAuthenticator:
    def __init__(self, auth: authenticator.Token) -> None:
        self._auth = auth

    def authenticate_request(self, request: http.Request) -> authenticator.Response | None:
        """Return the token's user, and remove a valid token from the request."""
        if not wsstream.is_websocket_request(request):
            return None
        offered = wsstream.protocols(request)
        encoded = [one.removeprefix(_BEARER_PROTOCOL_PREFIX) for one in offered if _carries_token(one)]
        others = [one for one in offered if not _carries_token(one)]
        if len(encoded) > 1:
            raise authenticator.AuthenticationError("multiple base64.bearer.authorization tokens specified")
        token = _decode(encoded[0]) if encoded else ""
        if not token:
            return None
        if not others:
            # The server needs another subprotocol that it can accept.
            raise authenticator.AuthenticationError("missing additional subprotocol")
        response = self._auth.authenticate_token(request.ctx, token)
        if response is None:
            raise authenticator.AuthenticationError("invalid bearer token")
        request.headers.set(wsstream.WEBSOCKET_PROTOCOL_HEADER, ",".join(others))
        return response


def _carries_token(protocol: str) -> bool:
    return protocol.startswith(_BEARER_PROTOCOL_PREFIX)


def _decode(encoded: str) -> str:
    try:
        if "=" in encoded:
            raise ValueError("padding")
        decoded = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise authenticator.AuthenticationError("invalid base64.bearer.authorization token encoding") from None
    try:
        return decoded.decode()
    except UnicodeDecodeError:
        raise authenticator.AuthenticationError("invalid base64.bearer.authorization token") from None
