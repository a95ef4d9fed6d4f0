"""Text to a defaulted configuration.

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
    """A configuration, the fields that were set in its text, and the faults of the text that were passed over."""

    configuration: KubeletConfiguration
    document: scheme.Document
    faults: list[str]


def decode_kubelet_configuration(data: bytes) -> Decoded:
    """Read YAML or JSON and fill in the defaults. Raises ValueError that names every wrong value.

    Fields that are not known, or there twice, are logged and passed over.
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
    """Read a drop-in, without defaults. Raises ValueError that names every wrong value and every field that is there
    twice.
    """
    found = scheme.decode_leniently(data)
    if found.duplicates:
        raise scheme.StrictDecodingError(found.duplicates)
    return found
