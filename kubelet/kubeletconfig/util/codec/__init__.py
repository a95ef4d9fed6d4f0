"""Decode the configuration.

Go: pkg/kubelet/kubeletconfig/util/codec
"""

from kubelet.kubeletconfig.util.codec.codec import (
    Decoded,
    decode_kubelet_configuration,
    decode_kubelet_configuration_into_json,
)

__all__ = ["Decoded", "decode_kubelet_configuration", "decode_kubelet_configuration_into_json"]
