"""Test that no certificate keeps OpenSSL busy."""

from __future__ import annotations

import contextlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from OpenSSL import SSL

from pkg.golang.http.costlycerts import refuse_costly_certificates
from pkg.golang.testing import COSTLY_CERTIFICATES, Issuer


def context(method: int, version: int, more: x509.Certificate | None) -> SSL.Context:
    """Return a context that sends its own certificate, and optionally another one."""
    made = SSL.Context(method)
    made.set_min_proto_version(version)
    made.set_max_proto_version(version)
    made.set_verify(SSL.VERIFY_PEER, lambda *_: True)
    # At other security levels OpenSSL does not even send such a certificate.
    made.set_cipher_list(b"DEFAULT:@SECLEVEL=0")
    issuer = Issuer()
    made.use_certificate(issuer.cert)
    made.use_privatekey(issuer.key)
    if more is not None:
        made.add_extra_chain_cert(more)
    return made


def shake_hands(client: SSL.Connection, server: SSL.Connection) -> None:
    """Do the handshake. Raise SSL.Error if the server or the client fails."""
    client.set_connect_state()
    server.set_accept_state()
    for _ in range(4):
        for one, other in ((client, server), (server, client)):
            with contextlib.suppress(SSL.WantReadError):
                one.do_handshake()
            with contextlib.suppress(SSL.WantReadError):
                other.bio_write(one.bio_read(1 << 17))


@pytest.mark.parametrize("version", [SSL.TLS1_2_VERSION, SSL.TLS1_3_VERSION])
@pytest.mark.parametrize("shown_by", ["server", "client"])
@pytest.mark.parametrize("which", COSTLY_CERTIFICATES)
def test_certificate_whose_key_takes_long_is_not_taken_apart(which: str, shown_by: str, version: int) -> None:
    more = COSTLY_CERTIFICATES[which]
    of_server = context(SSL.TLS_SERVER_METHOD, version, more if shown_by == "server" else None)
    of_client = context(SSL.TLS_CLIENT_METHOD, version, more if shown_by == "client" else None)
    refuse_costly_certificates(of_client if shown_by == "server" else of_server)
    client, server = SSL.Connection(of_client, None), SSL.Connection(of_server, None)
    with pytest.raises(SSL.Error):
        shake_hands(client, server)
    assert (client if shown_by == "server" else server).get_peer_cert_chain() is None


@pytest.mark.parametrize("version", [SSL.TLS1_2_VERSION, SSL.TLS1_3_VERSION])
@pytest.mark.parametrize("curve", [ec.SECP224R1, ec.SECP256R1, ec.SECP384R1, ec.SECP521R1])
def test_certificates_with_the_usual_curves_are_taken(curve: type[ec.EllipticCurve], version: int) -> None:
    more = Issuer(key=ec.generate_private_key(curve())).cert
    of_client, of_server = (context(method, version, more) for method in (SSL.TLS_CLIENT_METHOD, SSL.TLS_SERVER_METHOD))
    for each in (of_client, of_server):
        refuse_costly_certificates(each)
    client, server = SSL.Connection(of_client, None), SSL.Connection(of_server, None)
    shake_hands(client, server)
    assert [len(each.get_peer_cert_chain() or []) for each in (client, server)] == [2, 1]


@pytest.mark.parametrize("version", [SSL.TLS1_2_VERSION, SSL.TLS1_3_VERSION])
@pytest.mark.parametrize(("most", "is_refused"), [(2, True), (3, False), (None, False)])
def test_more_certificates_than_may_be_are_not_taken_apart(most: int | None, is_refused: bool, version: int) -> None:
    """A handshake with more than the allowed number of certificates fails.

    Two hundred certificates take a twentieth of a second, and hundreds of clients may send as many repeatedly.
    """
    of_server = context(SSL.TLS_SERVER_METHOD, version, None)
    of_client = context(SSL.TLS_CLIENT_METHOD, version, Issuer().cert)
    of_client.add_extra_chain_cert(Issuer().cert)
    refuse_costly_certificates(of_server, most)
    client, server = SSL.Connection(of_client, None), SSL.Connection(of_server, None)
    with pytest.raises(SSL.Error) if is_refused else contextlib.nullcontext():
        shake_hands(client, server)
    assert len(server.get_peer_cert_chain() or []) == (0 if is_refused else 2)
