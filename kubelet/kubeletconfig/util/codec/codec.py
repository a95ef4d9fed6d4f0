"""Text to a defaulted configuration.

Go: pkg/kubelet/kubeletconfig/util/codec/codec.go
"""

from __future__ import annotations

from kubelet.apis.config import KubeletConfiguration, scheme
from kubelet.apis.config.v1beta1 import set_defaults_kubelet_configuration


def decode_kubelet_configuration(data: bytes) -> KubeletConfiguration:
    """Read YAML or JSON strictly and fill in the defaults. Raises ValueError that names every fault."""
    try:
        document = scheme.decode(data)
        set_defaults_kubelet_configuration(document)
    except (ValueError, ExceptionGroup) as err:
        raise ValueError(f"failed to decode: {err}") from err
    return scheme.to_internal(document)
