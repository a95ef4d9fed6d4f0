"""Define the container runtime options that are available only as flags.

Go: pkg/kubelet/kubeletconfig/types.go
"""

from dataclasses import dataclass


@dataclass(slots=True)
class ContainerRuntimeOptions:
    """Hold the options of the node's container runtime."""

    # The runtime is expected to run in this cgroup.
    runtime_cgroups: str = ""
    # These are the file or directory with the configuration of the credential providers, and the directory of their
    # programs.
    image_credential_provider_config_path: str = ""
    image_credential_provider_bin_dir: str = ""
