"""What the parts of the plugin share: volume specs, secrets, and the data that is kept beside volumes.

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
# Seconds that one operation of a driver may take.
CSI_TIMEOUT = 120.0
VOL_NAME_SEP = "^"
VOL_DATA_FILE_NAME = "vol_data.json"
# What stands for the type of the file system of a volume that has none.
FS_TYPE_BLOCK_NAME = "block"

# Before a file with the data of a volume is whole it has another name, so that a crash leaves no half of it.
INCOMPLETE = ".incomplete"


class VolDataKey(enum.StrEnum):
    """What is kept beside a volume for who takes it away, after a restart too."""

    SPEC_VOL_ID = "specVolID"
    VOL_HANDLE = "volumeHandle"
    DRIVER_NAME = "driverName"
    NODE_NAME = "nodeName"
    ATTACHMENT_ID = "attachmentID"
    VOLUME_LIFECYCLE_MODE = "volumeLifecycleMode"
    SELINUX_MOUNT_CONTEXT = "seLinuxMountContext"


def get_credentials_from_secret(k8s: kubernetes.Interface, secret_ref: v1.SecretReference) -> dict[str, str]:
    """The secret's data as text. Raises errors.SecretError when the API server does not give it."""
    try:
        secret = k8s.core_v1.secrets(secret_ref.namespace).get(golang.background(), secret_ref.name)
    except Exception as err:
        # Whatever keeps it from being read: the volume's next attempt asks again.
        raise csierrors.SecretError(
            log(
                f"failed to find the secret {secret_ref.name} in the namespace {secret_ref.namespace} with error: {err}"
            )
        ) from err
    try:
        return {key: value.decode() for key, value in secret.data.items()}
    except UnicodeDecodeError as err:
        raise csierrors.SecretError(
            log(f"the secret {secret_ref.name} in the namespace {secret_ref.namespace} holds what is no text: {err}")
        ) from err


@contextmanager
def before_the_driver_acts() -> Iterator[None]:
    """What goes wrong inside says nothing of the volume, which stays as it was: mounted, not mounted or uncertain.

    Raises types.TransientOperationFailure for whatever does not say itself how far it came.

    DIVERGES (fault of Go): a failure before the driver is asked leaves a volume uncertain that an earlier attempt may
    have mounted.
    Go: pkg/volume/csi/csi_mounter.go, (*csiMountMgr).SetUpAt: such a failure, as of a full disk, counts as final, and
    makes the volume count as not mounted.
    Why: the driver may have carried out the earlier attempt, whose answer was lost, and nobody would have it take the
    volume back.
    Test: csi_mounter_test.py:test_driver_that_dies_after_it_was_asked_to_publish,
    csi_attacher_test.py:test_driver_that_dies_after_it_was_asked_to_stage
    """
    try:
        yield
    except (volumetypes.TransientOperationFailure, volumetypes.UncertainProgressError):
        raise
    except Exception as err:
        # See above: it may be anything, but no answer of the driver.
        raise volumetypes.TransientOperationFailure(str(err) or type(err).__name__) from err


def save_volume_data(directory: str, file_name: str, data: dict[str, str]) -> None:
    """Keep the data in a file of JSON, whole or not at all, even if the machine crashes. Raises OSError.

    DIVERGES (safer): the data file of a volume is not written again with the same content, and is replaced when new
    content is on disk as a whole.
    Go: pkg/volume/csi/csi_util.go, saveVolumeData: the file is made empty, and then written.
    Why: a full disk or a crash would leave no data, and the volume would be detached without having been unstaged.
    Test: csi_block_test.py:test_device_is_known_after_a_restart_though_nothing_can_be_written,
    csi_mounter_test.py:test_volume_data_is_on_disk_before_it_has_its_name
    """
    path = os.path.join(directory, file_name)
    klog.v(4).info_s(log(f"saving volume data file [{path}]"))
    # As Go's encoder writes it.
    text = f"{json.dumps(data, sort_keys=True, separators=(',', ':'), ensure_ascii=False)}\n".encode()
    with suppress(OSError):
        if Path(path).read_bytes() == text:
            return
    incomplete = Path(path + INCOMPLETE)
    try:
        with incomplete.open("wb") as file:
            file.write(text)
            file.flush()
            # Otherwise the name may outlive a crash without the data, and the volume could never be taken down.
            os.fsync(file.fileno())
        incomplete.replace(path)
    except OSError as err:
        raise OSError(log(f"failed to save volume data file {path}: {err}")) from err
    klog.v(4).info_s(log(f"volume data file saved successfully [{path}]"))


def load_volume_data(directory: str, file_name: str) -> dict[str, str]:
    """What save_volume_data kept. Raises FileNotFoundError, another OSError, or ValueError for what is no such data."""
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
    """Whether save_volume_data has kept something before.

    Raises OSError when that cannot be told.

    DIVERGES (safer): the data file of a volume stays when new data cannot be saved.
    Go: pkg/volume/csi/csi_mounter.go, (*csiMountMgr).SetUpAt: the directory and the data are removed then, unless
    something is mounted there.
    Why: after a restart with a full disk, nobody would have the driver take back a volume that is in use without a
    mount.
    Test: csi_mounter_test.py:test_volume_that_is_published_is_not_forgotten_when_the_disk_is_full,
    csi_attacher_test.py:test_volume_that_is_staged_is_not_forgotten_when_the_disk_is_full
    """
    return filesystem.exists(os.path.join(directory, file_name))


def remove_volume_data(directory: str, file_name: str) -> None:
    """Remove what save_volume_data kept, or was about to; "already gone" is success. Raises OSError."""
    for path in (os.path.join(directory, file_name), os.path.join(directory, file_name + INCOMPLETE)):
        Path(path).unlink(missing_ok=True)


def get_csi_source_from_spec(spec: Spec) -> v1.CSIPersistentVolumeSource:
    """Raises ValueError for any other volume."""
    return get_pv_source_from_spec(spec)


def get_read_only_from_spec(spec: Spec) -> bool:
    """Raises ValueError for what is not a persistent volume of a driver."""
    if spec.persistent_volume is not None and spec.persistent_volume.spec.csi is not None:
        return spec.read_only
    raise ValueError("CSIPersistentVolumeSource not defined in spec")


def log(message: str) -> str:
    """The message with the plugin's name before it."""
    return f"{CSI_PLUGIN_NAME}: {message}"


def escape_qualified_name(name: str) -> str:
    """A name that may hold a slash, as the name of a file. Go: k8s.io/utils/strings"""
    return name.replace("/", "~")


def get_volume_plugin_dir(spec_vol_id: str, host: VolumeHost) -> str:
    """Where the plugin keeps what it knows of a block volume: plugins/kubernetes.io/csi/volumeDevices/<name>."""
    device_dir = host.get_volume_device_plugin_dir(CSI_PLUGIN_NAME)
    return os.path.join(device_dir, escape_qualified_name(spec_vol_id))


def get_volume_device_plugin_dir(spec_vol_id: str, host: VolumeHost) -> str:
    """The directory of links to a block volume's device."""
    return os.path.join(get_volume_plugin_dir(spec_vol_id, host), "dev")


def get_volume_device_data_dir(spec_vol_id: str, host: VolumeHost) -> str:
    """The directory of a block volume's data file."""
    return os.path.join(get_volume_plugin_dir(spec_vol_id, host), "data")


def has_read_write_once(modes: list[str]) -> bool:
    """Whether one of the access modes lets one node alone write."""
    return any(mode in (v1.READ_WRITE_ONCE, v1.READ_WRITE_ONCE_POD) for mode in modes)


def get_source_from_spec(spec: Spec) -> tuple[v1.CSIVolumeSource | None, v1.CSIPersistentVolumeSource | None]:
    """One of the two. Raises ValueError for a volume of another kind."""
    if spec.volume is not None and spec.persistent_volume is not None:
        raise ValueError("volume.Spec has both volume and persistent volume sources")
    if spec.volume is not None and spec.volume.csi is not None:
        return spec.volume.csi, None
    if spec.persistent_volume is not None and spec.persistent_volume.spec.csi is not None:
        return None, spec.persistent_volume.spec.csi
    raise ValueError("volume source not found in volume.Spec")


def get_pv_source_from_spec(spec: Spec) -> v1.CSIPersistentVolumeSource:
    """Raises ValueError for a volume that is in the pod itself, or of another kind."""
    _, source = get_source_from_spec(spec)
    if source is None:
        raise ValueError("unexpected api.CSIVolumeSource found in volume.Spec")
    return source


def get_target_path(uid: types.UID, spec_volume_id: str, host: VolumeHost) -> str:
    """The directory of a pod's volume, which holds its data and the place where it is mounted."""
    name = escape_qualified_name(spec_volume_id)
    return host.get_pod_volume_dir(uid, escape_qualified_name(CSI_PLUGIN_NAME), name)


def get_csi_mounter_path(path: str) -> str:
    """Where below its own directory a volume is mounted."""
    return os.path.join(path, "mount")


def get_csi_driver_name(spec: Spec) -> str:
    """Raises ValueError for a volume of another kind."""
    volume, persistent = get_source_from_spec(spec)
    if volume is not None:
        return volume.driver
    assert persistent is not None
    return persistent.driver


_MIGRATED = object()


def create_csi_operation_context(spec: Spec | None, timeout: float) -> tuple[golang.Context, Callable[[], None]]:
    """A context for the calls of one operation, which have so many seconds together; and what to call after them.

    It tells whether the volume was one of a plugin in Kubernetes' own tree; without a spec nobody knows.
    """
    ctx = golang.with_value(golang.background(), _MIGRATED, spec is not None and spec.migrated)
    return golang.with_timeout(ctx, timeout)


def is_migrated(ctx: golang.Context) -> bool:
    """Whether the operation is on a volume that is migrated to CSI."""
    return bool(ctx.value(_MIGRATED))


def get_pod_info_attrs(pod: v1.Pod, volume_mode: str) -> dict[str, str]:
    """What drivers that ask for it are told of the pod."""
    return {
        "csi.storage.k8s.io/pod.name": pod.metadata.name,
        "csi.storage.k8s.io/pod.namespace": pod.metadata.namespace,
        "csi.storage.k8s.io/pod.uid": pod.metadata.uid,
        "csi.storage.k8s.io/serviceAccount.name": pod.spec.service_account_name,
        "csi.storage.k8s.io/ephemeral": "true" if volume_mode == storagev1.VOLUME_LIFECYCLE_EPHEMERAL else "false",
    }
