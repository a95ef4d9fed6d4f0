"""Provide handlers that several programs serve.

Go: k8s.io/apiserver/pkg/server/routes
"""

from pkg.apiserver.server.routes.flags import string_flag_put_handler

__all__ = ["string_flag_put_handler"]
