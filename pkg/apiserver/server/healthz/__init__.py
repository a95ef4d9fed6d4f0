"""Report the process's health over HTTP, as determined by named checks.

Go: k8s.io/apiserver/pkg/server/healthz/healthz.go
"""

from pkg.apiserver.server.healthz.healthz import (
    DEFAULT_HEALTHZ_PATH,
    LOG_HEALTHZ,
    PING_HEALTHZ,
    HealthChecker,
    UnhealthyError,
    install_handler,
)

__all__ = ["DEFAULT_HEALTHZ_PATH", "LOG_HEALTHZ", "PING_HEALTHZ", "HealthChecker", "UnhealthyError", "install_handler"]
