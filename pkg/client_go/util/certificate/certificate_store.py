"""Store the current certificate and its key on disk.

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
    """Signal that there is no certificate with a key yet."""


class FileStore:
    """Keep each pair in a separate file, and a symbolic link to the current pair.

    The current pair is the first of these that exists:
    1. <cert_directory>/<prefix>-current.pem, with certificate and key in one file,
    2. cert_file and key_file,
    3. <cert_directory>/<prefix>.crt and <key_directory>/<prefix>.key.

    An update writes <cert_directory>/<prefix>-<time>.pem (0600) and moves the link <prefix>-current.pem to it. The
    store is not thread-safe.
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
        """Complete an update that a crash interrupted; raise OSError or ValueError if that is impossible."""
        self._pair_name_prefix = pair_name_prefix
        self._cert_directory = Path(cert_directory)
        self._key_directory = Path(key_directory)
        self._cert_file = cert_file
        self._key_file = key_file
        self._clock = clock or clock_.RealClock()
        self._recover()

    def current_path(self) -> str:
        """Return the path of the link to the current pair, even if the link does not exist."""
        return str(self._path(_CURRENT_PAIR))

    def current(self) -> tls.Certificate:
        """Return the current pair.

        Raise NoCertKeyError if there is none, and OSError or ValueError if it cannot be used.
        """
        pair_file = self._path(_CURRENT_PAIR)
        if pair_file.exists():
            klog.info_s("Loading cert/key pair from a file", filePath=str(pair_file))
            # The pair is loaded under the file's name, not the link's, so that a later reader gets the same pair.
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
        """Store a pair, make it the current one, and return it.

        Raise ValueError if the PEM data is not a pair, and OSError if the file cannot be written. After an error
        nothing has changed.
        """
        pair = _check_pair(cert_data, key_data)
        filesystem.mkdir_all(self._cert_directory, 0o755)
        cert_path = self._path(self._clock.now().astimezone().strftime("%Y-%m-%d-%H-%M-%S"))
        # DIVERGES (fault of Go): the certificate store writes a pair to a temporary file, and renames it when it is
        # complete.
        # Go: k8s.io/client-go/util/certificate/certificate_store.go, (*fileStore).Update: the Go kubelet writes to the
        # final name, which contains the time in whole seconds.
        # Why: the second of two updates in one second would truncate the file that is in use.
        # Test: certificate_store_test.py:test_a_pair_takes_its_place_in_one_step
        atomicfile.write(cert_path, pair)
        self.update_symlink(str(cert_path))
        resolved = str(cert_path.resolve())
        return tls.x509_key_pair(pair, pair, resolved, resolved)

    def pending_key(self) -> bytes | None:
        """Return the key of a pending request, from <cert_directory>/<prefix>-pending.key, or None."""
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
        """Keep this key (0600) until the next call; None removes it. Raise OSError on failure."""
        if key_data is None:
            self._pending_path().unlink(missing_ok=True)
        else:
            keyutil.write_key(str(self._pending_path()), key_data)

    def _pending_path(self) -> Path:
        return self._cert_directory / f"{self._pair_name_prefix}-pending{_KEY_EXTENSION}"

    def update_symlink(self, filename: str) -> None:
        """Point the link of the current pair to this file, without a moment in which no link exists.

        Raise ValueError if something other than a link has its name, and FileNotFoundError if the file does not exist.
        """
        current_path, updated_path = self._path(_CURRENT_PAIR), self._path(_UPDATED_PAIR)
        _is_link(current_path)
        if _is_link(updated_path):
            updated_path.unlink()
        if not Path(filename).exists():
            raise FileNotFoundError(
                f'file "{filename}" does not exist so it can not be used as the currently selected cert/key'
            )
        # The target is absolute, because cert_directory may be relative to the working directory.
        updated_path.symlink_to(Path(filename).absolute())
        # DIVERGES (safer): the certificate store replaces the link to the current pair in one step.
        # Go: k8s.io/client-go/util/certificate/certificate_store.go, (*fileStore).updateSymlink: the Go kubelet removes
        # the old link, and then renames the new one.
        # Why: after a crash between the two steps, and for programs that read the link at that moment, there would be
        # no certificate.
        # Test: certificate_store_test.py:test_the_old_link_stays_until_the_new_one_takes_its_place
        updated_path.replace(current_path)

    def _recover(self) -> None:
        """Finish an update that stopped after the new link was made and before it was renamed."""
        current_path, updated_path = self._path(_CURRENT_PAIR), self._path(_UPDATED_PAIR)
        if not current_path.exists() and _is_link(updated_path):
            updated_path.replace(current_path)

    def _path(self, qualifier: str) -> Path:
        return self._cert_directory / f"{self._pair_name_prefix}-{qualifier}{_PEM_EXTENSION}"


def _check_pair(cert_data: bytes, key_data: bytes) -> bytes:
    """Return certificates and key as one PEM text without anything else; raise ValueError if they are not a pair."""
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
    """Report whether a link of this name exists; raise ValueError if something else has the name."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISLNK(mode):
        raise ValueError(f'expected "{path}" to be a symlink but it is a file')
    return True
