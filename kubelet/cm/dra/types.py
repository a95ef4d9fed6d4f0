"""Define what a container gets from its pod's claims.

Go: pkg/kubelet/cm/dra/types.go
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kubelet import container as kubecontainer


@dataclass(frozen=True, slots=True)
class ContainerInfo:
    cdi_devices: list[kubecontainer.CDIDevice] = field(default_factory=list)
