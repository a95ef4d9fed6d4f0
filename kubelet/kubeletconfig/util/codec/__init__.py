"""Decoding of the configuration. Go: pkg/kubelet/kubeletconfig/util/codec"""

from kubelet.kubeletconfig.util.codec.codec import decode_kubelet_configuration

__all__ = ["decode_kubelet_configuration"]
