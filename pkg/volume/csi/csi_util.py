"""Provide what the parts of the CSI plugin share: access to volume specs, secrets and the volumes' data files.

Go: pkg/volume/csi/csi_util.go
"""

from __future__ import annotations

import enum
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pkg import golang, klog
from pkg.api.core import v1
from pkg.api.storage import v1 as storagev1
from pkg.apimachinery import types
from pkg.apimachinery.runtime import codec
from pkg.util import filesystem
from pkg.volume.csi import errors as csierrors
from pkg.volume.plugins import Spec, VolumeHost
from pkg.volume.util import types as volumetypes

if TYPE_CHECKING:
    from pkg.client_go import kubernetes

CSI_PLUGIN_NAME = "kubernetes.io/csi"
# `CSI_TIMEOUT` is the time, in seconds, that one operation of a driver may take.
CSI_TIMEOUT = 120.0
VOL_NAME_SEP = "^"
VOL_DATA_FILE_NAME = "vol_data.json"
# `FS_TYPE_BLOCK_NAME` is the value that replaces the file system type of a block volume.
FS_TYPE_BLOCK_NAME = "block"

# An incomplete data file has this suffix, so that a crash does not leave half a file under the final name.
INCOMPLETE = ".incomplete"


class VolDataKey(enum.StrEnum):
    """Name the fields of a volume's data file, which an unmount needs, also after a restart."""

    SPEC_VOL_ID = "specVolID"
    VOL_HANDLE = "volumeHandle"
    DRIVER_NAME = "driverName"
    NODE_NAME = "nodeName"
    ATTACHMENT_ID = "attachmentID"
    VOLUME_LIFECYCLE_MODE = "volumeLifecycleMode"
    SELINUX_MOUNT_CONTEXT = "seLinuxMountContext"


def get_credentials_from_secret(k8s: kubernetes.Interface, secret_ref: v1.SecretReference) -> dict[str, str]:
    """Return the secret's data as text. Raise errors.SecretError if the secret cannot be read or is not text."""
    try:
        secret = k8s.core_v1.secrets(secret_ref.namespace).get(golang.background(), secret_ref.name)
    except Exception as err:
        # Whatever keeps the secret from being read, the next attempt reads it again.
        raise csierrors.SecretError(
            log(
                f"failed to find the secret {secret_ref.name} in the namespace {secret_ref.namespace} with error: {err}"
            )
        ) from err
    try:
        return {key: value.decode() for key, value in secret.data.items()}
    except UnicodeDecodeError as err:
        raise csierrors.SecretError(
            log(
                f"the secret {secret_ref.name} in the namespace {secret_ref.namespace} "
                f"has a value that is not text: {err}"
            )
        ) from err


@contextmanager
def before_the_driver_acts() -> Iterator[None]:
    """Turn an error of the body, in which the driver does nothing, into one that leaves the volume's state as it is.

    Raise types.TransientOperationFailure for any error that does not itself reveal the volume's state.

    DIVERGES (fault of Go): after a failure before the driver is asked, a volume that an earlier attempt may have
    mounted stays uncertain.
    Go: pkg/volume/csi/csi_mounter.go, (*csiMountMgr).SetUpAt: such a failure, for example because of a full disk, is
    final, and the volume counts as not mounted.
    Why: the driver may have carried out the earlier attempt, whose response was lost; nothing would make the driver
    unpublish the volume.
    Test: csi_mounter_test.py:test_driver_that_dies_after_it_was_asked_to_publish,
    csi_attacher_test.py:test_driver_that_dies_after_it_was_asked_to_stage
    """
    try:
        yield
    except (volumetypes.TransientOperationFailure, volumetypes.UncertainProgressError):
        raise
    except Exception as err:
        # The error may have any cause except the driver.
        raise volumetypes.TransientOperationFailure(str(err) or type(err).__name__) from err


def save_volume_data(directory: str, file_name: str, data: dict[str, str]) -> None:
    """Save the data in a JSON file, completely or not at all, even if the machine crashes. Raise OSError.

    DIVERGES (safer): the kubelet does not rewrite a volume's data file with the same content, and replaces the file
    only when the new content is completely on disk.
    Go: pkg/volume/csi/csi_util.go, saveVolumeData: the Go kubelet truncates the file and then writes it.
    Why: a full disk or a crash would leave no data, and the volume would be detached without having been unstaged.
    Test: csi_block_test.py:test_device_is_known_after_a_restart_though_nothing_can_be_written,
    csi_mounter_test.py:test_volume_data_is_on_disk_before_it_has_its_name
    """
    path = os.path.join(directory, file_name)
    klog.v(4).info_s(log(f"saving volume data file [{path}]"))
    # The format is that of Go's encoder.
    text = f"{json.dumps(data, sort_keys=True, separators=(',', ':'), ensure_ascii=False)}\n".encode()
    with suppress(OSError):
        if Path(path).read_bytes() == text:
            return
    incomplete = Path(path + INCOMPLETE)
    try:
        with incomplete.open("wb") as file:
            file.write(text)
            file.flush()
            # Without fsync the name may survive a crash without the content, and the volume could never be unmounted.
            os.fsync(file.fileno())
        incomplete.replace(path)
    except OSError as err:
        raise OSError(log(f"failed to save volume data file {path}: {err}")) from err
    klog.v(4).info_s(log(f"volume data file saved successfully [{path}]"))


def load_volume_data(directory: str, file_name: str) -> dict[str, str]:
    """Return the saved data. Raise FileNotFoundError, another OSError, or ValueError if the file is invalid."""
    path = os.path.join(directory, file_name)
    klog.v(4).info_s(log(f"loading volume data file [{path}]"))
    try:
        text = Path(path).read_bytes()
    except FileNotFoundError as err:
        raise FileNotFoundError(f"{log(f'failed to open volume data file [{path}]')}: {err}") from err
    except OSError as err:
        raise OSError(f"{log(f'failed to open volume data file [{path}]')}: {err}") from err
    try:
        return codec.decode_json(text, dict[str, str])
    except ValueError as err:
        raise ValueError(log(f"failed to parse volume data file [{path}]: {err}")) from err


def has_volume_data(directory: str, file_name: str) -> bool:
    """Report whether a data file exists. Raise OSError if that cannot be determined.

    DIVERGES (safer): a volume's data file stays when new data cannot be saved.
    Go: pkg/volume/csi/csi_mounter.go, (*csiMountMgr).SetUpAt: the Go kubelet then removes the directory and the data,
    unless something is mounted there.
    Why: after a restart with a full disk, nothing would make the driver unpublish a volume that is in use without a
    mount.
    Test: csi_mounter_test.py:test_volume_that_is_published_is_not_forgotten_when_the_disk_is_full,
    csi_attacher_test.py:test_volume_that_is_staged_is_not_forgotten_when_the_disk_is_full
    """
    return filesystem.exists(os.path.join(directory, file_name))


def remove_volume_data(directory: str, file_name: str) -> None:
    """Remove the data file and an incomplete one. Missing files are not an error. Raise OSError."""
    for path in (os.path.join(directory, file_name), os.path.join(directory, file_name + INCOMPLETE)):
        Path(path).unlink(missing_ok=True)


def get_csi_source_from_spec(spec: Spec) -> v1.CSIPersistentVolumeSource:
    """Return the source. Raise ValueError if the volume is not a persistent CSI volume."""
    return get_pv_source_from_spec(spec)


def get_read_only_from_spec(spec: Spec) -> bool:
    """Report whether the volume is read-only. Raise ValueError if it is not a persistent CSI volume."""
    if spec.persistent_volume is not None and spec.persistent_volume.spec.csi is not None:
        return spec.read_only
    raise ValueError("CSIPersistentVolumeSource not defined in spec")


def log(message: str) -> str:
    """Return the message with the plugin's name as prefix."""
    return f"{CSI_PLUGIN_NAME}: {message}"


def escape_qualified_name(name: str) -> str:
    """Return a name that may contain a slash as a file name.

    Go: k8s.io/utils/strings
    """
    return name.replace("/", "~")


def get_volume_plugin_dir(spec_vol_id: str, host: VolumeHost) -> str:
    """Return the plugin's directory for a block volume: plugins/kubernetes.io/csi/volumeDevices/<name>."""
    device_dir = host.get_volume_device_plugin_dir(CSI_PLUGIN_NAME)
    return os.path.join(device_dir, escape_qualified_name(spec_vol_id))


def get_volume_device_plugin_dir(spec_vol_id: str, host: VolumeHost) -> str:
    """Return the directory of links to a block volume's device."""
    return os.path.join(get_volume_plugin_dir(spec_vol_id, host), "dev")


def get_volume_device_data_dir(spec_vol_id: str, host: VolumeHost) -> str:
    """Return the directory of a block volume's data file."""
    return os.path.join(get_volume_plugin_dir(spec_vol_id, host), "data")


def has_read_write_once(modes: list[str]) -> bool:
    """Report whether one of the access modes lets a single node write."""
    return any(mode in (v1.READ_WRITE_ONCE, v1.READ_WRITE_ONCE_POD) for mode in modes)


def get_source_from_spec(spec: Spec) -> tuple[v1.CSIVolumeSource | None, v1.CSIPersistentVolumeSource | None]:
    """Return the inline source or the persistent source; the other one is None.

    Raise ValueError if the volume is not a CSI volume.
    """
    if spec.volume is not None and spec.persistent_volume is not None:
        raise ValueError("volume.Spec has both volume and persistent volume sources")
    if spec.volume is not None and spec.volume.csi is not None:
        return spec.volume.csi, None
    if spec.persistent_volume is not None and spec.persistent_volume.spec.csi is not None:
        return None, spec.persistent_volume.spec.csi
    raise ValueError("volume source not found in volume.Spec")


def get_pv_source_from_spec(spec: Spec) -> v1.CSIPersistentVolumeSource:
    """Return the persistent source. Raise ValueError for an inline volume or another kind of volume."""
    _, source = get_source_from_spec(spec)
    if source is None:
        raise ValueError("unexpected api.CSIVolumeSource found in volume.Spec")
    return source


def get_target_path(uid: types.UID, spec_volume_id: str, host: VolumeHost) -> str:
    """Return the directory of a pod's volume, which has its data file and its mount point."""
    name = escape_qualified_name(spec_volume_id)
    return host.get_pod_volume_dir(uid, escape_qualified_name(CSI_PLUGIN_NAME), name)


def get_csi_mounter_path(path: str) -> str:
    """Return the mount point below a volume's directory."""
    return os.path.join(path, "mount")


def get_csi_driver_name(spec: Spec) -> str:
    """Return the driver's name. Raise ValueError for another kind of volume."""
    volume, persistent = get_source_from_spec(spec)
    if volume is not None:
        return volume.driver
    assert persistent is not None
    return persistent.driver


_MIGRATED = object()


def create_csi_operation_context(spec: Spec | None, timeout: float) -> tuple[golang.Context, Callable[[], None]]:
    """Return a context for the calls of one operation, and the function that releases it.

    The calls together may take `timeout` seconds. The context records whether the volume was migrated from an in-tree
    plugin; without a spec that is unknown.
    """
    ctx = golang.with_value(golang.background(), _MIGRATED, spec is not None and spec.migrated)
    return golang.with_timeout(ctx, timeout)


def is_migrated(ctx: golang.Context) -> bool:
    """Report whether the operation is on a volume that was migrated to CSI."""
    return bool(ctx.value(_MIGRATED))


def get_pod_info_attrs(pod: v1.Pod, volume_mode: str) -> dict[str, str]:
    """Return the pod's information for drivers that require it."""
    return {
        "csi.storage.k8s.io/pod.name": pod.metadata.name,
        "csi.storage.k8s.io/pod.namespace": pod.metadata.namespace,
        "csi.storage.k8s.io/pod.uid": pod.metadata.uid,
        "csi.storage.k8s.io/serviceAccount.name": pod.spec.service_account_name,
        "csi.storage.k8s.io/ephemeral": "true" if volume_mode == storagev1.VOLUME_LIFECYCLE_EPHEMERAL else "false",
    }
