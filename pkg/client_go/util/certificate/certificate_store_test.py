"""Test the certificate store: which pair is the current one, and how the next one replaces it."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pkg.apimachinery.clock import testing as clocktesting
from pkg.client_go.util import certificate
from pkg.client_go.util.certificate import testing
from pkg.client_go.util.keyutil import pem

AUTHORITY = testing.Authority()
FIRST = AUTHORITY.issue("first")
SECOND = AUTHORITY.issue("second")
START = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)


def new_store(
    directory: Path, cert_file: str = "", key_file: str = "", clock: clocktesting.FakeClock | None = None
) -> certificate.FileStore:
    return certificate.FileStore("kubelet", str(directory), str(directory), cert_file, key_file, clock)


def write(directory: Path, name: str, *parts: bytes) -> Path:
    path = directory / name
    path.write_bytes(b"".join(parts))
    return path


def common_name(cert: certificate.Certificate) -> str:
    return cert.leaf.subject.rfc4514_string()


def test_update_symlink_existing_file_error(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    write(tmp_path, "kubelet-current.pem")
    pair = write(tmp_path, "kubelet-pair.pem")
    with pytest.raises(ValueError, match=r'expected ".*kubelet-current.pem" to be a symlink but it is a file'):
        store.update_symlink(str(pair))


def test_update_symlink_new_file_not_exist(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    old = write(tmp_path, "kubelet-old.pem")
    store.update_symlink(str(old))
    with pytest.raises(FileNotFoundError, match=r'file ".*kubelet-new.pem" does not exist'):
        store.update_symlink(str(tmp_path / "kubelet-new.pem"))
    assert (tmp_path / "kubelet-current.pem").readlink() == old


@pytest.mark.parametrize("leftover", [False, True], ids=["clean", "after a crash"])
def test_update_symlink_replaces_the_old_one(tmp_path: Path, leftover: bool) -> None:
    store = new_store(tmp_path)
    old, new = write(tmp_path, "kubelet-old.pem"), write(tmp_path, "kubelet-new.pem")
    store.update_symlink(str(old))
    if leftover:
        (tmp_path / "kubelet-updated.pem").symlink_to(tmp_path / "nowhere")
    store.update_symlink(str(new))
    assert (tmp_path / "kubelet-current.pem").readlink() == new
    assert not os.path.lexists(tmp_path / "kubelet-updated.pem")


def refuse_renames(monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(path: Path, target: Path) -> Path:
        raise OSError("the machine loses its power")

    monkeypatch.setattr(Path, "replace", replace)


def test_the_old_link_stays_until_the_new_one_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store(tmp_path)
    old, new = write(tmp_path, "kubelet-old.pem"), write(tmp_path, "kubelet-new.pem")
    store.update_symlink(str(old))
    refuse_renames(monkeypatch)
    with pytest.raises(OSError, match="loses its power"):
        store.update_symlink(str(new))
    assert (tmp_path / "kubelet-current.pem").readlink() == old


# A certificate with another version, or with a key on another curve, cannot be read by the library.
VERSION, OTHER_VERSION = b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x07"
P256, OTHER_CURVE = b"\x2a\x86\x48\xce\x3d\x03\x01\x07", b"\x2a\x86\x48\xce\x3d\x03\x01\x63"


@pytest.mark.parametrize(
    ("part", "other", "message"),
    [(VERSION, OTHER_VERSION, "cannot parse the certificate"), (P256, OTHER_CURVE, "cannot read the .* public key")],
)
def test_certificates_that_the_library_cannot_read(part: bytes, other: bytes, message: str) -> None:
    """Certificates that the library cannot read cause ValueErrors, although the library raises other exceptions."""
    (block,) = pem.blocks(FIRST[0])
    assert part in block.data
    strange = pem.encode("CERTIFICATE", block.data.replace(part, other))
    with pytest.raises(ValueError, match=message):
        certificate.x509_key_pair(strange, FIRST[1])


def test_the_link_is_absolute_though_the_directory_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stored = new_store(Path("pki")).update(*FIRST)
    monkeypatch.chdir("/")
    assert (tmp_path / "pki/kubelet-current.pem").readlink().is_absolute()
    assert common_name(new_store(tmp_path / "pki").current()) == common_name(stored) == "CN=first"


def test_update(tmp_path: Path) -> None:
    clock = clocktesting.FakeClock(START)
    store = new_store(tmp_path / "pki", clock=clock)
    first = store.update(*FIRST)
    clock.step(1)
    second = store.update(*SECOND)
    assert (common_name(first), common_name(second)) == ("CN=first", "CN=second")
    assert second.key_pem.endswith(SECOND[1]) and second.cert_pem.startswith(SECOND[0])
    assert common_name(new_store(tmp_path / "pki").current()) == "CN=second"
    assert store.current_path() == str(tmp_path / "pki/kubelet-current.pem")
    # Each pair names its own file and not the link, which moves on to the next pair.
    assert Path(first.cert_file).read_bytes() == b"".join(FIRST)
    assert Path(second.key_file).read_bytes() == b"".join(SECOND)
    assert Path(second.cert_file).name == START.astimezone().strftime("kubelet-%Y-%m-%d-%H-%M-") + "10.pem"
    files = sorted(path for path in (tmp_path / "pki").iterdir() if not path.is_symlink())
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600, 0o600]


def test_update_keeps_intermediates_and_drops_the_rest(tmp_path: Path) -> None:
    cert = new_store(tmp_path).update(b"a note\n" + FIRST[0] + AUTHORITY.cert_pem, FIRST[1])
    assert len(cert.chain) == 2 and common_name(cert) == "CN=first"
    assert Path(cert.cert_file).read_bytes() == FIRST[0] + AUTHORITY.cert_pem + FIRST[1]


def test_two_updates_in_one_second(tmp_path: Path) -> None:
    store = new_store(tmp_path, clock=clocktesting.FakeClock(START))
    store.update(*FIRST)
    store.update(*SECOND)
    assert common_name(store.current()) == "CN=second"


def test_a_pair_takes_its_place_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store(tmp_path, clock=clocktesting.FakeClock(START))
    store.update(*FIRST)
    refuse_renames(monkeypatch)
    with pytest.raises(OSError, match="loses its power"):
        store.update(*SECOND)
    assert common_name(store.current()) == "CN=first"


@pytest.mark.parametrize(
    ("cert", "key", "message"),
    [
        pytest.param(b"", FIRST[1], "invalid certificate data: data does not contain", id="no certificate"),
        pytest.param(FIRST[0], b"", "invalid key data", id="no key"),
        pytest.param(FIRST[0], SECOND[1], "private key does not match public key", id="another's key"),
    ],
)
def test_update_with_bad_data_leaves_all_as_it_was(tmp_path: Path, cert: bytes, key: bytes, message: str) -> None:
    store = new_store(tmp_path, clock=clocktesting.FakeClock(START))
    store.update(*FIRST)
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(ValueError, match=message):
        store.update(cert, key)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert common_name(store.current()) == "CN=first"


def test_current_takes_the_link_first_then_the_files_then_the_default_names(tmp_path: Path) -> None:
    store = new_store(tmp_path, str(tmp_path / "given.crt"), str(tmp_path / "given.key"))
    with pytest.raises(certificate.NoCertKeyError, match=r'no cert/key files read at ".*kubelet-current.pem", \(".*'):
        store.current()
    write(tmp_path, "kubelet.crt", FIRST[0])
    with pytest.raises(certificate.NoCertKeyError):
        store.current()
    write(tmp_path, "kubelet.key", FIRST[1])
    assert common_name(store.current()) == "CN=first"
    write(tmp_path, "given.crt", SECOND[0])
    write(tmp_path, "given.key", SECOND[1])
    cert = store.current()
    assert (common_name(cert), cert.key_file) == ("CN=second", str(tmp_path / "given.key"))
    store.update_symlink(str(write(tmp_path, "kubelet-1.pem", *FIRST)))
    cert = store.current()
    assert (common_name(cert), cert.cert_file) == ("CN=first", str(tmp_path / "kubelet-1.pem"))


def test_current_names_the_file_that_is_no_pair(tmp_path: Path) -> None:
    write(tmp_path, "kubelet-current.pem", FIRST[0], SECOND[1])
    with pytest.raises(ValueError, match=r'could not convert data from ".*kubelet-current.pem".*does not match'):
        new_store(tmp_path).current()


def test_an_interrupted_update_is_completed(tmp_path: Path) -> None:
    pair = write(tmp_path, "kubelet-1.pem", *FIRST)
    (tmp_path / "kubelet-updated.pem").symlink_to(pair)
    assert common_name(new_store(tmp_path).current()) == "CN=first"
    assert not os.path.lexists(tmp_path / "kubelet-updated.pem")


def test_an_interrupted_update_does_not_replace_a_pair(tmp_path: Path) -> None:
    new_store(tmp_path).update(*FIRST)
    (tmp_path / "kubelet-updated.pem").symlink_to(write(tmp_path, "kubelet-1.pem", *SECOND))
    assert common_name(new_store(tmp_path).current()) == "CN=first"


def test_a_file_in_place_of_the_new_link_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "kubelet-updated.pem")
    with pytest.raises(ValueError, match=r'expected ".*kubelet-updated.pem" to be a symlink but it is a file'):
        new_store(tmp_path)


def test_pending_key(tmp_path: Path) -> None:
    store = new_store(tmp_path / "pki")
    assert store.pending_key() is None
    store.set_pending_key(FIRST[1])
    file = tmp_path / "pki" / "kubelet-pending.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert new_store(tmp_path / "pki").pending_key() == FIRST[1]
    file.write_bytes(b"broken")
    assert store.pending_key() is None
    store.set_pending_key(None)
    store.set_pending_key(None)
    assert not file.exists()


def test_load_into_presents_the_pair_though_its_files_are_gone(tmp_path: Path) -> None:
    import ssl

    cert = new_store(tmp_path).update(*FIRST)
    Path(cert.cert_file).unlink()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    cert.load_into(context)
    client = ssl.create_default_context(cadata=AUTHORITY.cert_pem.decode())
    client.check_hostname = False
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server),
        context.wrap_bio(to_server, to_client, server_side=True),
    )
    for side in sides * 2:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pass
    shown = sides[0].getpeercert(binary_form=True)
    from cryptography.hazmat.primitives import serialization

    assert shown == cert.leaf.public_bytes(serialization.Encoding.DER)
