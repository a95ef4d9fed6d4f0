"""Read and write the configuration as a document.

Go: pkg/kubelet/apis/config/scheme
"""

from kubelet.apis.config.scheme.scheme import (
    API_VERSION,
    KIND,
    Document,
    LenientDocument,
    StrictDecodingError,
    check_kind,
    convert,
    decode,
    decode_leniently,
    to_internal,
    to_versioned,
    wire_path,
)

__all__ = [
    "API_VERSION",
    "KIND",
    "Document",
    "LenientDocument",
    "StrictDecodingError",
    "check_kind",
    "convert",
    "decode",
    "decode_leniently",
    "to_internal",
    "to_versioned",
    "wire_path",
]
