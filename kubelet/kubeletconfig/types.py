"""Options about the container runtime that are flags only.

Go: pkg/kubelet/kubeletconfig/types.go
"""

from dataclasses import dataclass


@dataclass(slots=True)
class ContainerRuntimeOptions:
    """What a node says about its own container runtime."""

    # Cgroup in which the runtime is expected to run.
    runtime_cgroups: str = ""
    # File or directory that describes the credential providers, and where their programs are.
    image_credential_provider_config_path: str = ""
    image_credential_provider_bin_dir: str = ""
