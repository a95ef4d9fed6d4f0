"""Create the first namespaces and the objects that each namespace has, and empty deleted namespaces.

Go: pkg/controller/namespace, pkg/controller/serviceaccount/serviceaccounts_controller.go and
pkg/controller/certificates/rootcacertpublisher
"""

from __future__ import annotations

from ..interfaces import Object, WatchEvent
from ..resources import STORED
from . import base

INITIAL = ("default", "kube-system", "kube-public", "kube-node-lease")
_ROOT_CA = "kube-root-ca.crt"
_ROOT_CA_NOTE = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)
# Pods come first because their deletion takes time.
_CONTENT = ("pods", *(each.plural for each in STORED if each.namespaced and each.plural != "pods"))


class Namespaces(base.WatchController):
    """Create the first namespaces, and keep the default service account and the cluster's CA in each namespace."""

    name = "namespaces"
    resources = ("namespaces", *_CONTENT)

    def __init__(self, ca_certificate: bytes) -> None:
        super().__init__()
        self._ca_certificate = ca_certificate
        self._terminating: set[str] = set()

    def prepare(self) -> None:
        for name in INITIAL:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            base.create_unless_exists(self.store, "namespaces", namespace)
            self._fill(name)

    def handle(self, resource: str, event: WatchEvent) -> None:
        metadata = event.object["metadata"]
        if resource == "namespaces":
            self._handle_namespace(event)
        elif metadata["namespace"] in self._terminating:
            if event.type == "DELETED" and metadata.get("deletionTimestamp"):  # The namespace waited for this object.
                self._empty(metadata["namespace"])
        elif event.type != "ADDED" and (resource, metadata["name"]) in (
            ("serviceaccounts", "default"),
            ("configmaps", _ROOT_CA),
        ):
            self._fill(metadata["namespace"])

    def _handle_namespace(self, event: WatchEvent) -> None:
        name = event.object["metadata"]["name"]
        if event.type == "DELETED":
            self._terminating.discard(name)
        elif event.object["metadata"].get("deletionTimestamp"):
            self._terminating.add(name)
            self._empty(name)
        else:
            self._fill(name)

    def _fill(self, namespace: str) -> None:
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": namespace},
        }
        base.create_unless_exists(self.store, "serviceaccounts", account)
        annotations = {"kubernetes.io/description": _ROOT_CA_NOTE}
        data = {"ca.crt": self._ca_certificate.decode()}
        ca = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": _ROOT_CA, "namespace": namespace, "annotations": annotations},
            "data": data,
        }
        base.create_unless_exists(self.store, "configmaps", ca)

        def repair(found: Object) -> bool:
            changed = found.get("data") != data
            found["data"] = data
            return changed

        base.change(self.store, "configmaps", _ROOT_CA, namespace, repair)

    def _empty(self, namespace: str) -> None:
        """Delete everything in a namespace, and remove its finalizer when nothing is left."""
        left = False
        for resource in _CONTENT:
            for obj in self.store.list(resource, namespace):
                if not obj["metadata"].get("deletionTimestamp"):
                    base.delete_if_exists(self.store, resource, obj)
            left = left or bool(self.store.list(resource, namespace))
        if not left:
            base.change(self.store, "namespaces", namespace, "", _finalize, "finalize")


def _finalize(namespace: Object) -> bool:
    spec = namespace.setdefault("spec", {})
    had = "kubernetes" in (spec.get("finalizers") or [])
    spec["finalizers"] = [each for each in spec.get("finalizers") or [] if each != "kubernetes"]
    return had
