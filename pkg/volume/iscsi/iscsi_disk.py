"""A disk of a target, as a volume describes it.

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
# What no portal, target, initiator or interface has in its name.
_NOT_IN_NAMES = re.compile(r"[/\x00-\x20\x7f]")


@dataclass(slots=True)
class ISCSIDisk:
    """One disk of a target, for one pod."""

    plugin: ISCSIPlugin
    volume_name: str
    pod_uid: types.UID = types.UID("")
    # The first one names the disk's directory.
    portals: list[str] = field(default_factory=list)
    iqn: str = ""
    lun: str = ""
    # What iscsiadm calls the initiator's settings: those that are there, and those in use for this disk.
    init_iface: str = ""
    iface: str = ""
    chap_discovery: bool = False
    chap_session: bool = False
    # Never logged, never written.
    secret: dict[str, str] = field(default_factory=dict, repr=False)
    initiator_name: str = ""

    def get_path(self) -> str:
        return self.plugin.host.get_pod_volume_dir(self.pod_uid, ESCAPED_PLUGIN_NAME, self.volume_name)

    @property
    def iface_of_persistent_volume(self) -> str:
        """The name of the settings for a persistent volume with an initiator of its own."""
        return f"{self.portals[0]}:{self.volume_name}"

    @property
    def iface_of_pods(self) -> str:
        """The name of the settings for a volume in a pod with an initiator of its own; the same for all pods' volumes
        on the disk, which the node mounts once.

        No name of a persistent volume has an @, and iscsiadm takes names of 64 characters at most.

        DIVERGES (safer): iscsiadm's settings for a volume in a pod are named after the target and the number of the
        disk.
        Go: pkg/volume/iscsi/iscsi.go, createISCSIDisk: the settings are named after the volume, as those for a
        persistent volume are, and the pod chooses that name.
        Why: a pod could change the settings for a persistent volume, or have them deleted.
        Test: iscsi_test.py:test_settings_of_a_pods_volume_are_not_those_of_a_persistent_volume
        """
        disk = hashlib.sha256(f"{self.iqn}-lun-{self.lun}".encode()).hexdigest()[:16]
        return f"{self.portals[0]}:@{disk}"


def portal_mounter(portal: str) -> str:
    """The portal with its port."""
    return portal if ":" in portal else f"{portal}:{_DEFAULT_PORT}"


def get_source(spec: Spec) -> Source:
    """The iscsi source. Raises ValueError for another volume."""
    if spec.volume is not None and spec.volume.iscsi is not None:
        return spec.volume.iscsi
    if spec.persistent_volume is not None and spec.persistent_volume.spec.iscsi is not None:
        return spec.persistent_volume.spec.iscsi
    raise ValueError("Spec does not reference an ISCSI volume type")


def is_read_only(spec: Spec) -> bool:
    """A volume of a pod says so itself; of a persistent one the pod says so."""
    if spec.volume is not None and spec.volume.iscsi is not None:
        return spec.volume.iscsi.read_only
    return spec.read_only


def get_iscsi_secret_name_and_namespace(spec: Spec, default_secret_namespace: str) -> tuple[str, str]:
    """Of the secret with the passwords; both "" when there is none."""
    source = get_source(spec)
    if source.secret_ref is None:
        return "", ""
    namespace = source.secret_ref.namespace if isinstance(source.secret_ref, v1.SecretReference) else ""
    return source.secret_ref.name, namespace or default_secret_namespace


def create_iscsi_disk(spec: Spec, pod_uid: types.UID, plugin: ISCSIPlugin, secret: dict[str, str]) -> ISCSIDisk:
    """Raises ValueError for another volume, and for names that cannot be right.

    DIVERGES (safer): a volume is refused if the name of a portal, target, initiator or interface has a slash, a space
    or a control character in it.
    Go: pkg/volume/iscsi/iscsi.go, createISCSIDisk: any name is taken; the API server refuses few.
    Why: such names become names of files, and lines in files, of iscsiadm and the kubelet: a pod could have files of
    its choice written anywhere on the node.
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
        # Another initiator needs settings of its own.
        disk.iface = disk.iface_of_pods if spec.persistent_volume is None else disk.iface_of_persistent_volume
    return disk


def create_secret_map(spec: Spec, plugin: ISCSIPlugin, namespace: str) -> dict[str, str]:
    """User names and passwords of CHAP, if it is asked for. Raises ValueError."""
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
    except Exception as err:  # whatever the API server says keeps the disk from being attached
        raise ValueError(f"couldn't get secret {namespace}/{name} error: {err}") from err
    return {key: value.decode("utf-8", "replace") for key, value in secret.data.items()}
