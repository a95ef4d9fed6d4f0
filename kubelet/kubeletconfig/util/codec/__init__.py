"""Decoding and encoding of the configuration. Go: pkg/kubelet/kubeletconfig/util/codec"""

from kubelet.kubeletconfig.util.codec.codec import decode_kubelet_configuration, encode_kubelet_config

__all__ = ["decode_kubelet_configuration", "encode_kubelet_config"]
