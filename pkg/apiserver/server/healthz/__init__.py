"""Is the process alive? An HTTP server that answers with the verdict of named checks.

Go: staging/src/k8s.io/apiserver/pkg/server/healthz/healthz.go
"""

from pkg.apiserver.server.healthz.healthz import Check, HealthzServer, Response

__all__ = ["Check", "HealthzServer", "Response"]
