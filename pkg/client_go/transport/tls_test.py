"""Test the client's certificates."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives import serialization

from pkg.golang import testing

WAIT = 30.0

# This script runs in a process with its own terminal, on which OpenSSL would prompt for the password of a key.
_LOAD = """
import os, ssl, sys
from pkg.client_go import transport
from pkg.client_go.util import certificate

os.open(sys.argv[1], os.O_RDWR)
pair = eval(sys.argv[4])(sys.argv[2].encode(), sys.argv[3].encode())
try:
    pair.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
except ValueError as err:
    print(err)
"""


@pytest.mark.parametrize("kind", ["transport.KeyPair", "certificate.x509_key_pair"])
def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(kind: str) -> None:
    cert, key = testing.Issuer().issue(testing.subject("node"))
    # For one encrypted key out of 256, decryption with the empty password gives valid padding by chance, and OpenSSL
    # then tries the next key. It never gets as far as the fifth key.
    encrypted = b"".join(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
        for _ in range(4)
    )
    # The fifth key is one that parse_private_key_pem accepts.
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    ours, theirs = os.openpty()
    try:
        keys = encrypted + plain
        command = [sys.executable, "-c", _LOAD, os.ttyname(theirs), testing.pem(cert).decode(), keys.decode(), kind]
        done = subprocess.run(command, start_new_session=True, capture_output=True, text=True, timeout=WAIT, check=True)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout.startswith("cannot use the client certificate with its key: ")
