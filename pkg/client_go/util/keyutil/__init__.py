"""Make, read and write private keys, as PEM data and in files.

Go: k8s.io/client-go/util/keyutil
"""

from pkg.client_go.util.keyutil.key import (
    EC_PRIVATE_KEY_BLOCK_TYPE,
    PRIVATE_KEY_BLOCK_TYPE,
    RSA_PRIVATE_KEY_BLOCK_TYPE,
    PrivateKey,
    load_or_generate_key_file,
    make_elliptic_private_key_pem,
    marshal_private_key_to_pem,
    parse_private_key_pem,
    private_key_from_file,
    write_key,
)

__all__ = [
    "EC_PRIVATE_KEY_BLOCK_TYPE",
    "PRIVATE_KEY_BLOCK_TYPE",
    "RSA_PRIVATE_KEY_BLOCK_TYPE",
    "PrivateKey",
    "load_or_generate_key_file",
    "make_elliptic_private_key_pem",
    "marshal_private_key_to_pem",
    "parse_private_key_pem",
    "private_key_from_file",
    "write_key",
]
