"""Describe a disk of an iSCSI target by a volume's source.

Go: pkg/volume/iscsi/iscsi.go
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.volume.plugins import Spec

if TYPE_CHECKING:
    from pkg.volume.iscsi.iscsi import ISCSIPlugin

Source = v1.ISCSIVolumeSource | v1.ISCSIPersistentVolumeSource

ISCSI_PLUGIN_NAME = "kubernetes.io/iscsi"
ESCAPED_PLUGIN_NAME = ISCSI_PLUGIN_NAME.replace("/", "~")
_DEFAULT_PORT = 3260
# `_NOT_IN_NAMES` matches characters that no name of a portal, target, initiator or interface may contain.
_NOT_IN_NAMES = re.compile(r"[/\x00-\x20\x7f]")


@dataclass(slots=True)
class ISCSIDisk:
    """Describe one disk of a target, for one pod."""

    plugin: ISCSIPlugin
    volume_name: str
    pod_uid: types.UID = types.UID("")
    # The first portal is a part of the name of the disk's directory.
    portals: list[str] = field(default_factory=list)
    iqn: str = ""
    lun: str = ""
    # `init_iface` is iscsiadm's name of existing initiator settings, and `iface` the name of the settings that this
    # disk uses.
    init_iface: str = ""
    iface: str = ""
    chap_discovery: bool = False
    chap_session: bool = False
    # The secret must never be logged or written to disk.
    secret: dict[str, str] = field(default_factory=dict, repr=False)
    initiator_name: str = ""

    def get_path(self) -> str:
        return self.plugin.host.get_pod_volume_dir(self.pod_uid, ESCAPED_PLUGIN_NAME, self.volume_name)

    @property
    def iface_of_persistent_volume(self) -> str:
        """Return the name of the settings for a persistent volume with its own initiator name."""
        return f"{self.portals[0]}:{self.volume_name}"

    @property
    def iface_of_pods(self) -> str:
        """Return the name of the settings for a volume in a pod's spec with its own initiator name.

        All pods' volumes on the same disk have the same name, because the node mounts the disk once. The name contains
        an @, which no name of a persistent volume has, and at most 64 characters, which is the limit of iscsiadm.

        DIVERGES (safer): the kubelet names iscsiadm's settings for a volume in a pod's spec after the target and the
        number of the disk.
        Go: pkg/volume/iscsi/iscsi.go, createISCSIDisk: the Go kubelet names the settings after the volume, as for a
        persistent volume, and the pod chooses that name.
        Why: a pod could change the settings for a persistent volume, or make the kubelet delete them.
        Test: iscsi_test.py:test_settings_of_a_pods_volume_are_not_those_of_a_persistent_volume
        """
        disk = hashlib.sha256(f"{self.iqn}-lun-{self.lun}".encode()).hexdigest()[:16]
        return f"{self.portals[0]}:@{disk}"


def portal_mounter(portal: str) -> str:
    """Return the portal with its port."""
    return portal if ":" in portal else f"{portal}:{_DEFAULT_PORT}"


def get_source(spec: Spec) -> Source:
    """Return the iscsi source. Raise ValueError for another volume."""
    if spec.volume is not None and spec.volume.iscsi is not None:
        return spec.volume.iscsi
    if spec.persistent_volume is not None and spec.persistent_volume.spec.iscsi is not None:
        return spec.persistent_volume.spec.iscsi
    raise ValueError("Spec does not reference an ISCSI volume type")


def is_read_only(spec: Spec) -> bool:
    """Report whether the volume is read-only. For a persistent volume, the pod's spec decides."""
    if spec.volume is not None and spec.volume.iscsi is not None:
        return spec.volume.iscsi.read_only
    return spec.read_only


def get_iscsi_secret_name_and_namespace(spec: Spec, default_secret_namespace: str) -> tuple[str, str]:
    """Return the name and namespace of the secret with the passwords, or two empty strings if there is none."""
    source = get_source(spec)
    if source.secret_ref is None:
        return "", ""
    namespace = source.secret_ref.namespace if isinstance(source.secret_ref, v1.SecretReference) else ""
    return source.secret_ref.name, namespace or default_secret_namespace


def create_iscsi_disk(spec: Spec, pod_uid: types.UID, plugin: ISCSIPlugin, secret: dict[str, str]) -> ISCSIDisk:
    """Return the disk. Raise ValueError for another volume, and for invalid names.

    DIVERGES (safer): the kubelet rejects a volume if the name of a portal, target, initiator or interface contains a
    slash, a space or a control character.
    Go: pkg/volume/iscsi/iscsi.go, createISCSIDisk: the Go kubelet accepts any name; the API server rejects few.
    Why: such names become names of files, and lines in files, of iscsiadm and the kubelet: a pod could make them write
    any file on the node.
    Test: iscsi_test.py:test_names_do_not_lead_out_of_the_directories_of_iscsiadm
    """
    source = get_source(spec)
    portals = [portal_mounter(portal) for portal in (source.target_portal, *source.portals)]
    initiator_name = source.initiator_name or ""
    for name in (*portals, source.iqn, source.iscsi_interface, initiator_name):
        if _NOT_IN_NAMES.search(name):
            raise ValueError(f"{klog.quote(name)} cannot be the name of a portal, target, initiator or interface")
    disk = ISCSIDisk(
        plugin=plugin,
        volume_name=spec.name(),
        pod_uid=pod_uid,
        portals=portals,
        iqn=source.iqn,
        lun=str(source.lun),
        init_iface=source.iscsi_interface,
        iface=source.iscsi_interface,
        chap_discovery=source.chap_auth_discovery,
        chap_session=source.chap_auth_session,
        secret=secret,
        initiator_name=initiator_name,
    )
    if initiator_name:
        # A volume with its own initiator name needs settings of its own.
        disk.iface = disk.iface_of_pods if spec.persistent_volume is None else disk.iface_of_persistent_volume
    return disk


def create_secret_map(spec: Spec, plugin: ISCSIPlugin, namespace: str) -> dict[str, str]:
    """Return the user names and passwords for CHAP, or nothing if the volume does not use it. Raise ValueError."""
    source = get_source(spec)
    if not (source.chap_auth_discovery or source.chap_auth_session):
        return {}
    name, namespace = get_iscsi_secret_name_and_namespace(spec, namespace)
    if not name or not namespace:
        return {}
    client = plugin.host.get_kube_client()
    if client is None:
        raise ValueError("cannot get kube client")
    try:
        secret = client.core_v1.secrets(namespace).get(golang.background(), name)
    except Exception as err:  # Any error of the API server keeps the disk from being attached.
        raise ValueError(f"couldn't get secret {namespace}/{name} error: {err}") from err
    return {key: value.decode("utf-8", "replace") for key, value in secret.data.items()}
