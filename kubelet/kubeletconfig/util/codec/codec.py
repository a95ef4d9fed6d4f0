"""Decode text to a configuration with defaults.

Go: pkg/kubelet/kubeletconfig/util/codec/codec.go
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

from kubelet.apis.config import KubeletConfiguration, scheme
from kubelet.apis.config.v1beta1 import set_defaults_kubelet_configuration
from pkg import klog


@dataclass(frozen=True, slots=True)
class Decoded:
    """Hold a configuration, the fields that its text sets, and the faults of the text that were ignored."""

    configuration: KubeletConfiguration
    document: scheme.Document
    faults: list[str]


def decode_kubelet_configuration(data: bytes) -> Decoded:
    """Read YAML or JSON, and set the defaults. Raise ValueError, which names every invalid value.

    Unknown and duplicate fields are logged and ignored.
    """
    try:
        found = scheme.decode_leniently(data)
        defaulted = deepcopy(found.document)
        set_defaults_kubelet_configuration(defaulted)
    except (ValueError, ExceptionGroup) as err:
        raise ValueError(f"failed to decode: {err}") from err
    if found.faults:
        fault = scheme.StrictDecodingError(found.faults)
        klog.info_s("Using lenient decoding as strict decoding failed", err=fault)
    return Decoded(scheme.to_internal(defaulted), found.document, found.faults)


def decode_kubelet_configuration_into_json(data: bytes) -> scheme.LenientDocument:
    """Read a drop-in without defaults.

    Raise ValueError, which names every invalid value and every duplicate field.
    """
    found = scheme.decode_leniently(data)
    if found.duplicates:
        raise scheme.StrictDecodingError(found.duplicates)
    return found
