"""Provide test tools: a machine without threads or file descriptors, concurrent callers, and invalid certificates.

The certificates are built by hand, because tools that make valid certificates make no invalid ones.
"""

from __future__ import annotations

import contextlib
import datetime
import gc
import resource
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeVar
from unittest import mock

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pkg import golang
from pkg.golang.turn import Turn, Turns, with_turn

CLIENT_AUTH = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER_AUTH = ExtendedKeyUsageOID.SERVER_AUTH
ANY_USAGE = ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE
UID_OID = "1.3.6.1.4.1.57683.2"

HOUR = datetime.timedelta(hours=1)

_T = TypeVar("_T")


@contextmanager
def out_of_threads(prefix: str = "") -> Iterator[list[str]]:
    """Make golang.go fail for each thread whose name begins with `prefix`; yield the names of those threads."""
    refused: list[str] = []
    start = golang.Thread.start

    def refuse(thread: golang.Thread) -> None:
        if not thread.name.startswith(prefix):
            return start(thread)
        refused.append(thread.name)
        raise RuntimeError("can't start new thread")

    with mock.patch.object(golang.Thread, "start", refuse):
        yield refused


def closes(channel: golang.Channel[Any], within: float = 30.0) -> bool:
    """Report whether the channel is closed within `within` seconds and is empty. Another value is received and lost."""
    taken = golang.select(channel, timeout=within).took(channel)
    return taken is not None and not taken.ok


def frames_kept_after(call: Callable[[], object]) -> list[str]:
    """Name the functions whose frames only the garbage collector can free after the call has ended.

    A frame refers to the local variables of its function and to the frames of its callers. An error refers to the
    frames that it has passed.
    """
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        with contextlib.suppress(Exception):  # The result of the call does not matter.
            call()
        gc.collect()
        return [each.f_code.co_name for each in gc.garbage if isinstance(each, FrameType)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


class Held:
    """Create objects for functions to hold in variables, and report which of them were freed."""

    class _Object: ...

    def __init__(self) -> None:
        self._references: list[weakref.ref[Held._Object]] = []

    def new(self) -> object:
        made = self._Object()
        self._references.append(weakref.ref(made))
        return made

    def freed(self) -> list[bool]:
        """Report for each object, in the order of creation, whether it was freed."""
        return [reference() is None for reference in self._references]


class Gate:
    """Count the rounds of a repeated action, and block the first round until `open` is set."""

    def __init__(self) -> None:
        self.rounds = 0
        self.first_has_come, self.open = threading.Event(), threading.Event()

    def pass_through(self) -> None:
        self.rounds += 1
        if self.rounds == 1:
            self.first_has_come.set()
            assert self.open.wait(30)


class OnlyTurn:
    """Provide a single turn, and report whether it is free.

    A test runs code in `with only.turn` under `only.ctx`, and checks that the code lets others have the turn meanwhile.
    """

    def __init__(self) -> None:
        self._turns = Turns(1)
        self.turn = Turn(self._turns)
        self.ctx = with_turn(golang.background(), self.turn)

    def is_free(self) -> bool:
        return self._turns._free == 1

    def when_free(self, do: Callable[[], object]) -> None:
        """Wait until the turn is free, then call `do`."""
        ctx, cancel = golang.with_timeout(golang.background(), 30)
        while not self.is_free():
            assert not ctx.wait(0.001), "others are kept waiting"
        cancel()
        do()


class _Waits(golang.Context):
    """Represent a context that never ends and counts the calls of `done`."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        super().__init__(golang.background()._state, None)
        self.waiting = threading.Semaphore(0)

    def done(self) -> golang.Channel[None]:
        self.waiting.release()
        return super().done()


def ask_as_crowd(gate: Gate, ask: Callable[[golang.Context], _T]) -> list[_T]:
    """Call `ask` once, and three more times while the first call waits at the gate.

    Return the results, the first one first.
    """
    ctx, answers = _Waits(), list[_T]()
    first = golang.go(lambda: answers.append(ask(golang.background())), name="asks-first")
    assert gate.first_has_come.wait(30)
    others = [golang.go(lambda: answers.append(ask(ctx)), name=f"asks-meanwhile-{i}") for i in range(3)]
    # The third of them makes the call and does not wait.
    for _ in range(2):
        assert ctx.waiting.acquire(timeout=30)
    gate.open.set()
    for thread in (first, *others):
        thread.join(30)
    return answers


@contextmanager
def out_of_threads_here() -> Iterator[None]:
    """Prevent the calling thread from starting threads, even in a library."""
    start, here = threading.Thread.start, threading.current_thread()

    def refuse(thread: threading.Thread) -> None:
        if threading.current_thread() is here:
            raise RuntimeError("can't start new thread")
        start(thread)

    with mock.patch.object(threading.Thread, "start", refuse):
        yield


@contextmanager
def out_of_files() -> Iterator[None]:
    """Prevent this process from opening files and sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def subject(common_name: str = "", organization: Sequence[str] = (), uids: Sequence[str] = ()) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organization]
    if common_name:
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
    attributes += [x509.NameAttribute(x509.ObjectIdentifier(UID_OID), each, _validate=False) for each in uids]
    return x509.Name(attributes)


@dataclass(slots=True)
class Issuer:
    """Represent an authority that signs certificates.

    By default it, and all that it signs, is valid from one hour ago to one hour from now.
    """

    name: x509.Name = field(default_factory=lambda: subject("test-ca"))
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    ca: bool = True
    # `key_usage` names the purposes of the key; None leaves out the extension.
    key_usage: x509.KeyUsage | None = None
    valid_for: datetime.timedelta = HOUR
    signed_by: Issuer | None = None
    cert: x509.Certificate = field(init=False)

    def __post_init__(self) -> None:
        extensions: list[x509.ExtensionType] = [x509.BasicConstraints(ca=self.ca, path_length=None)]
        if self.key_usage is not None:
            extensions.append(self.key_usage)
        signer = self.signed_by or self
        self.cert = signer._build(self.name, self.key, self.valid_for, extensions)

    def issue(
        self,
        name: x509.Name,
        usages: Sequence[x509.ObjectIdentifier] = (CLIENT_AUTH,),
        valid_for: datetime.timedelta = HOUR,
    ) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        key = ec.generate_private_key(ec.SECP256R1())
        return self._build(name, key, valid_for, [x509.ExtendedKeyUsage(usages)] if usages else []), key

    def _build(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        valid_for: datetime.timedelta,
        extensions: Sequence[x509.ExtensionType],
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(
            issuer_name=self.name,
            subject_name=name,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=min(now, now + valid_for) - HOUR,
            not_valid_after=now + valid_for,
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(self.key, hashes.SHA256())


def key_usage(key_cert_sign: bool) -> x509.KeyUsage:
    """Return a key usage for signatures, and with `key_cert_sign` also for signatures of certificates."""
    return x509.KeyUsage(True, False, False, False, False, key_cert_sign, False, False, False)


def der(cert: x509.Certificate) -> bytes:
    return cert.public_bytes(serialization.Encoding.DER)


def pem(*certs: x509.Certificate) -> bytes:
    return b"".join(cert.public_bytes(serialization.Encoding.PEM) for cert in certs)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


# These are tags of DER.
_INTEGER, _BIT_STRING, _OCTET_STRING, _OID, _SEQUENCE = 0x02, 0x03, 0x04, 0x06, 0x30
_EC_PUBLIC_KEY, _SM2 = bytes.fromhex("2a8648ce3d0201"), bytes.fromhex("2a811ccf5501822d")
_P224 = bytes.fromhex("2b81040021")
_PRIME_FIELD, _BINARY_FIELD = bytes.fromhex("2a8648ce3d0101"), bytes.fromhex("2a8648ce3d0102")
_TRINOMIAL = bytes.fromhex("2a8648ce3d01020302")
_ECDSA_WITH_SHA256 = bytes.fromhex("2a8648ce3d040302")
# This is the prime of the field of P-256.
_PRIME = 2**256 - 2**224 + 2**192 + 2**96 - 1


def _element(kind: int, *content: bytes) -> bytes:
    data = b"".join(content)
    length = len(data).to_bytes(2).lstrip(b"\0") or b"\0"
    return bytes([kind]) + (length if len(data) < 128 else bytes([0x80 + len(length)]) + length) + data


def _integer(value: int) -> bytes:
    return _element(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1))


def _certificate_with_key(kind: bytes, parameters: bytes, point: bytes) -> x509.Certificate:
    """Return an unsigned certificate with the given key."""
    key_kind = _element(_SEQUENCE, _element(_OID, kind), parameters)
    key = _element(_SEQUENCE, key_kind, _element(_BIT_STRING, b"\0", point))
    algorithm = _element(_SEQUENCE, _element(_OID, _ECDSA_WITH_SHA256))
    nobody, valid = _element(_SEQUENCE), _element(_SEQUENCE, *[_element(0x17, b"260101000000Z")] * 2)
    content = _element(_SEQUENCE, _element(0xA0, _integer(2)), _integer(1), algorithm, nobody, valid, nobody, key)
    signature = _element(_BIT_STRING, b"\0", _element(_SEQUENCE, _integer(1), _integer(1)))
    return x509.load_der_x509_certificate(_element(_SEQUENCE, content, algorithm, signature))


def _certificate_on(field: bytes) -> x509.Certificate:
    """Return a certificate whose key is on a curve over this field, with explicit parameters."""
    point = b"\2" + bytes(31) + b"\1"
    curve = _element(_SEQUENCE, _element(_OCTET_STRING, bytes(32)), _element(_OCTET_STRING, b"\1" * 32))
    numbers = _element(_SEQUENCE, _integer(1), field, curve, _element(_OCTET_STRING, point), _integer(_PRIME - 2))
    return _certificate_with_key(_EC_PUBLIC_KEY, numbers, point)


def _certificate_with_half_a_point(kind: bytes) -> x509.Certificate:
    """Return a certificate whose key is a compressed point of P-224: only one coordinate is present."""
    return _certificate_with_key(kind, _element(_OID, _P224), b"\2" + bytes(27) + b"\1")


# OpenSSL spends much computation on these certificates as soon as it reads them.
COSTLY_CERTIFICATES = {
    "prime field": _certificate_on(_element(_SEQUENCE, _element(_OID, _PRIME_FIELD), _integer(_PRIME))),
    "binary field": _certificate_on(
        _element(
            _SEQUENCE,
            _element(_OID, _BINARY_FIELD),
            _element(_SEQUENCE, _integer(233), _element(_OID, _TRINOMIAL), _integer(74)),
        )
    ),
    "half a point": _certificate_with_half_a_point(_EC_PUBLIC_KEY),
    "half a point, by another name": _certificate_with_half_a_point(_SM2),
}
