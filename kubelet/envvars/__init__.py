"""Environment variables that tell a container where the services of its namespace are.

Go: pkg/kubelet/envvars
"""

from kubelet.envvars.envvars import from_services

__all__ = ["from_services"]
