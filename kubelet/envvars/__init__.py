"""Provide the environment variables with the addresses of the services in a container's namespace.

Go: pkg/kubelet/envvars
"""

from kubelet.envvars.envvars import from_services

__all__ = ["from_services"]
