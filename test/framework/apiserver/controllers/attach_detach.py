"""Attach volumes to the nodes of their pods, and act as the driver's attacher, which attaches everything.

Go: pkg/controller/volume/attachdetach, and the external-attacher of kubernetes-csi
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..interfaces import Object, WatchEvent
from . import base

NAME = "attachdetach-controller"


class AttachError(Exception):
    """Signal that a volume cannot be attached. The message is the reason."""


@dataclass(frozen=True)
class Attachable:
    """Describe a volume that must be attached. `unique_name` is its name in the statuses of nodes."""

    unique_name: str
    driver: str = ""  # Without a driver, only the kubelet handles the volume.
    handle: str = ""
    volume: str = ""

    def attachment_name(self, node: str) -> str:
        return f"csi-{hashlib.sha256(f'{self.handle}{self.driver}{node}'.encode()).hexdigest()}"


def attach_anything(attachment: Object) -> Mapping[str, str] | None:
    return {"attachedTo": attachment["spec"]["nodeName"]}


class AttachDetach(base.WatchController):
    """Attach volumes. `attach` returns an attachment's publish context, returns None to wait, or raises AttachError."""

    name = "attachdetach"
    resources = ("pods", "nodes", "volumeattachments", "persistentvolumes", "persistentvolumeclaims", "csidrivers")

    def __init__(self, attach: Callable[[Object], Mapping[str, str] | None] = attach_anything) -> None:
        super().__init__()
        self.attach = attach
        # _in_use holds the volumes in use that each node has last reported.
        self._in_use: dict[str, object] = {}

    def handle(self, resource: str, event: WatchEvent) -> None:
        if resource == "volumeattachments" and event.type != "DELETED":
            self._attend(event.object)
        for node in self._concerned(resource, event):
            self._sync_node(node)

    def _concerned(self, resource: str, event: WatchEvent) -> set[str]:
        """Return the nodes that a change may affect."""
        obj = event.object
        match resource:
            case "volumeattachments":
                return {obj["spec"]["nodeName"]}
            case "nodes":
                return self._changed(obj["metadata"]["name"], event)
            case "pods":
                volumes = obj["spec"].get("volumes") or []
                return {obj["spec"].get("nodeName", "")} - {""} if any(map(_may_attach, volumes)) else set()
        return {each["metadata"]["name"] for each in self.store.list("nodes")}

    def _changed(self, name: str, event: WatchEvent) -> set[str]:
        """Return the node if it is new or deleted, or if its volumes in use have changed."""
        before = self._in_use.pop(name, None)
        if event.type == "DELETED":
            return {name}
        now = self._in_use[name] = (event.object.get("status") or {}).get("volumesInUse") or []
        return set() if now == before else {name}

    def try_again(self) -> None:
        """Handle all waiting attachments again. Tests that change `attach` call this."""
        with self._lock:
            for attachment in self.store.list("volumeattachments"):
                self._attend(attachment)

    def _attend(self, attachment: Object) -> None:
        status = attachment.get("status") or {}
        if status.get("attached") or attachment["metadata"].get("deletionTimestamp"):
            return
        try:
            context = self.attach(attachment)
        except AttachError as err:
            if (status.get("attachError") or {}).get("message") != str(err):
                error = {"time": base.timestamp(), "message": str(err)}
                self._set_status(attachment, {"attached": False, "attachError": error})
            return
        if context is not None:
            self._set_status(attachment, {"attached": True, "attachmentMetadata": dict(context)})

    def _set_status(self, attachment: Object, status: Object) -> None:
        def mutate(found: Object) -> bool:
            if found["metadata"]["uid"] != attachment["metadata"]["uid"] or found["status"].get("attached"):
                return False
            found["status"] = status
            return True

        base.change(self.store, "volumeattachments", attachment["metadata"]["name"], "", mutate, "status")

    def _sync_node(self, name: str) -> None:
        """Attach what the node's pods need. Detach what no pod needs and the node does not use."""
        node = base.find(self.store, "nodes", name)
        wanted = self._wanted(name) if node is not None else {}
        status = (node or {}).get("status") or {}
        in_use = set(status.get("volumesInUse") or [])
        attachments = {
            each["metadata"]["name"]: each
            for each in self.store.list("volumeattachments")
            if each["spec"]["nodeName"] == name
        }
        for each in wanted.values():
            if each.driver and each.attachment_name(name) not in attachments:
                self._attach(each, name)
        attached = {unique: each for unique, each in wanted.items() if self._is_attached(each, name, attachments)}
        reported = status.get("volumesAttached") or []
        kept = [each for each in reported if each["name"] in in_use or each["name"] in wanted]
        known = {each["name"] for each in kept}
        # Go writes the device path of the publish context here. CSI drivers leave it empty.
        kept += [{"name": unique, "devicePath": ""} for unique in sorted(attached.keys() - known)]
        self._report(name, kept)
        needed = {each.attachment_name(name) for each in wanted.values()}
        for attachment_name, attachment in attachments.items():
            if attachment_name not in needed and self._unique_name(attachment) not in in_use:
                base.delete_if_exists(self.store, "volumeattachments", attachment)

    def _is_attached(self, each: Attachable, node: str, attachments: Mapping[str, Object]) -> bool:
        attachment = attachments.get(each.attachment_name(node), {})
        return not each.driver or bool((attachment.get("status") or {}).get("attached"))

    def _attach(self, each: Attachable, node: str) -> None:
        attachment = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttachment",
            "metadata": {"name": each.attachment_name(node)},
            "spec": {"attacher": each.driver, "nodeName": node, "source": {"persistentVolumeName": each.volume}},
        }
        base.create_unless_exists(self.store, "volumeattachments", attachment)

    def _report(self, name: str, attached: list[Object]) -> None:
        def mutate(node: Object) -> bool:
            status = node.setdefault("status", {})
            if (status.get("volumesAttached") or []) == attached:
                return False
            status["volumesAttached"] = attached
            return True

        base.change(self.store, "nodes", name, "", mutate, "status")

    def _unique_name(self, attachment: Object) -> str:
        """Return the unique name of an attachment's volume, or "" if the volume does not exist."""
        name = (attachment["spec"].get("source") or {}).get("persistentVolumeName", "")
        volume = base.find(self.store, "persistentvolumes", name)
        csi = volume["spec"].get("csi") if volume is not None else None
        return _csi_name(csi) if csi else ""

    def _wanted(self, node: str) -> dict[str, Attachable]:
        """Return the attachable volumes of the node's pods that have not ended, by their unique names."""
        found = {}
        for pod in self.store.list("pods", field_selector=f"spec.nodeName={node}"):
            if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                continue
            for volume in pod["spec"].get("volumes") or []:
                if (each := self._attachable(pod, volume)) is not None:
                    found[each.unique_name] = each
        return found

    def _attachable(self, pod: Object, volume: Object) -> Attachable | None:
        metadata = pod["metadata"]
        if "iscsi" in volume:
            return Attachable(_iscsi_name(volume["iscsi"]))
        if "ephemeral" in volume:
            claim_name = f"{metadata['name']}-{volume['name']}"
        elif "persistentVolumeClaim" in volume:
            claim_name = volume["persistentVolumeClaim"]["claimName"]
        else:
            return None
        claim = base.find(self.store, "persistentvolumeclaims", claim_name, metadata["namespace"])
        if claim is None or (claim.get("status") or {}).get("phase") != "Bound":
            return None
        persistent = base.find(self.store, "persistentvolumes", claim["spec"].get("volumeName", ""))
        return self._attachable_volume(persistent) if persistent is not None else None

    def _attachable_volume(self, volume: Object) -> Attachable | None:
        spec = volume["spec"]
        if "iscsi" in spec:
            return Attachable(_iscsi_name(spec["iscsi"]))
        csi = spec.get("csi")
        if not csi or not self._needs_attachment(csi["driver"]):
            return None
        return Attachable(_csi_name(csi), csi["driver"], csi["volumeHandle"], volume["metadata"]["name"])

    def _needs_attachment(self, driver: str) -> bool:
        found = base.find(self.store, "csidrivers", driver)
        return found is None or bool(found["spec"].get("attachRequired", True))


def _may_attach(volume: Object) -> bool:
    return any(source in volume for source in ("persistentVolumeClaim", "ephemeral", "iscsi"))


def _csi_name(csi: Object) -> str:
    return f"kubernetes.io/csi/{csi['driver']}^{csi['volumeHandle']}"


def _iscsi_name(iscsi: Object) -> str:
    return f"kubernetes.io/iscsi/{iscsi['targetPortal']}:{iscsi['iqn']}:{iscsi.get('lun', 0)}"
