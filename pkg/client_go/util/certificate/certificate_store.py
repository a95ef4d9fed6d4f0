"""Where the current certificate and its key lie on disk.

Go: k8s.io/client-go/util/certificate/certificate_store.go
"""

from __future__ import annotations

import stat
from pathlib import Path

from pkg import klog
from pkg.apimachinery import clock as clock_
from pkg.client_go.util import cert as certutil
from pkg.client_go.util import keyutil
from pkg.client_go.util.certificate import tls
from pkg.client_go.util.keyutil import pem
from pkg.util import atomicfile, filesystem

_KEY_EXTENSION = ".key"
_CERT_EXTENSION = ".crt"
_PEM_EXTENSION = ".pem"
_CURRENT_PAIR = "current"
_UPDATED_PAIR = "updated"


class NoCertKeyError(Exception):
    """There is no certificate with key yet."""


class FileStore:
    """Keeps each pair in a file of its own, and a link to the one in use.

    The pair in use is the first that is there of
    1. <cert_directory>/<prefix>-current.pem, with certificate and key in one file,
    2. cert_file and key_file,
    3. <cert_directory>/<prefix>.crt and <key_directory>/<prefix>.key.
    Updates are written to <cert_directory>/<prefix>-<time>.pem (0600), and the link <prefix>-current.pem follows.
    Has one owner; not safe from several threads.
    """

    def __init__(
        self,
        pair_name_prefix: str,
        cert_directory: str,
        key_directory: str,
        cert_file: str,
        key_file: str,
        clock: clock_.Clock | None = None,
    ) -> None:
        """Completes an update that a crash has interrupted. Raises OSError or ValueError if that cannot be."""
        self._pair_name_prefix = pair_name_prefix
        self._cert_directory = Path(cert_directory)
        self._key_directory = Path(key_directory)
        self._cert_file = cert_file
        self._key_file = key_file
        self._clock = clock or clock_.RealClock()
        self._recover()

    def current_path(self) -> str:
        """The path of the link to the pair in use, whether there is one or not."""
        return str(self._path(_CURRENT_PAIR))

    def current(self) -> tls.Certificate:
        """The pair in use. Raises NoCertKeyError if there is none, OSError or ValueError if it cannot be used."""
        pair_file = self._path(_CURRENT_PAIR)
        if pair_file.exists():
            klog.info_s("Loading cert/key pair from a file", filePath=str(pair_file))
            # By its own name and not the link's: who reads it later wants the same pair.
            resolved = str(pair_file.resolve())
            return tls.load_x509_key_pair(resolved, resolved)
        cert = self._cert_directory / (self._pair_name_prefix + _CERT_EXTENSION)
        key = self._key_directory / (self._pair_name_prefix + _KEY_EXTENSION)
        for cert_file, key_file in ((self._cert_file, self._key_file), (str(cert), str(key))):
            if cert_file and key_file and Path(cert_file).exists() and Path(key_file).exists():
                klog.info_s("Loading cert/key pair", certFile=cert_file, keyFile=key_file)
                return tls.load_x509_key_pair(cert_file, key_file)
        raise NoCertKeyError(
            f'no cert/key files read at "{pair_file}", ("{self._cert_file}", "{self._key_file}") '
            f'or ("{self._cert_directory}", "{self._key_directory}")'
        )

    def update(self, cert_data: bytes, key_data: bytes) -> tls.Certificate:
        """Store a pair, make it the one in use, and return it.

        Raises ValueError if the PEM data is no pair, OSError if it cannot be written; then all stays as it was.
        """
        pair = _check_pair(cert_data, key_data)
        filesystem.mkdir_all(self._cert_directory, 0o755)
        cert_path = self._path(self._clock.now().astimezone().strftime("%Y-%m-%d-%H-%M-%S"))
        # DIVERGES (fault of Go): a pair is written to a file of another name, and renamed once it is complete.
        # Go: k8s.io/client-go/util/certificate/certificate_store.go, (*fileStore).Update: the pair is written to the
        # final name, in which the time has seconds only.
        # Why: the second of two updates in one second would empty the file that is in use.
        # Test: certificate_store_test.py:test_a_pair_takes_its_place_in_one_step
        atomicfile.write(cert_path, pair)
        self.update_symlink(str(cert_path))
        resolved = str(cert_path.resolve())
        return tls.x509_key_pair(pair, pair, resolved, resolved)

    def pending_key(self) -> bytes | None:
        """The key of a request that may still be granted, in <cert_directory>/<prefix>-pending.key."""
        path = self._pending_path()
        try:
            data = path.read_bytes()
            keyutil.parse_private_key_pem(data)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as err:
            klog.error_s(err, "Unable to read the key of the last certificate request", path=str(path))
            return None
        return data

    def set_pending_key(self, key_data: bytes | None) -> None:
        """Keep that key (0600) until the next call; None removes it. Raises OSError."""
        if key_data is None:
            self._pending_path().unlink(missing_ok=True)
        else:
            keyutil.write_key(str(self._pending_path()), key_data)

    def _pending_path(self) -> Path:
        return self._cert_directory / f"{self._pair_name_prefix}-pending{_KEY_EXTENSION}"

    def update_symlink(self, filename: str) -> None:
        """Let the link to the pair in use point to that file, without a moment in which there is no link.

        Raises ValueError if something that is not a link has its name, FileNotFoundError if there is no such file.
        """
        current_path, updated_path = self._path(_CURRENT_PAIR), self._path(_UPDATED_PAIR)
        _is_link(current_path)
        if _is_link(updated_path):
            updated_path.unlink()
        if not Path(filename).exists():
            raise FileNotFoundError(
                f'file "{filename}" does not exist so it can not be used as the currently selected cert/key'
            )
        # Absolute, because the directory of certificates may have been given relative to the working directory.
        updated_path.symlink_to(Path(filename).absolute())
        # DIVERGES (safer): the link to the current pair is replaced in one step.
        # Go: k8s.io/client-go/util/certificate/certificate_store.go, (*fileStore).updateSymlink: the old link is
        # removed, and then the new one renamed.
        # Why: after a crash in between, and for others that read the link at that moment, there would be no
        # certificate.
        # Test: certificate_store_test.py:test_the_old_link_stays_until_the_new_one_takes_its_place
        updated_path.replace(current_path)

    def _recover(self) -> None:
        """Finish an update that stopped between the making of the new link and its renaming."""
        current_path, updated_path = self._path(_CURRENT_PAIR), self._path(_UPDATED_PAIR)
        if not current_path.exists() and _is_link(updated_path):
            updated_path.replace(current_path)

    def _path(self, qualifier: str) -> Path:
        return self._cert_directory / f"{self._pair_name_prefix}-{qualifier}{_PEM_EXTENSION}"


def _check_pair(cert_data: bytes, key_data: bytes) -> bytes:
    """Certificates and key as one PEM text, nothing else in it. Raises ValueError if they are no pair."""
    try:
        certs = certutil.parse_certs_pem(cert_data)
    except ValueError as err:
        raise ValueError(f"invalid certificate data: {err}") from err
    key_block = next(pem.blocks(key_data), None)
    if key_block is None:
        raise ValueError("invalid key data")
    pair = certutil.encode_certificates(*certs) + pem.encode(key_block.type, key_block.data)
    try:
        tls.x509_key_pair(pair, pair)
    except ValueError as err:
        raise ValueError(f"could not convert data into cert/key pair: {err}") from err
    return pair


def _is_link(path: Path) -> bool:
    """Whether there is a link of that name. Raises ValueError if there is something else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISLNK(mode):
        raise ValueError(f'expected "{path}" to be a symlink but it is a file')
    return True
