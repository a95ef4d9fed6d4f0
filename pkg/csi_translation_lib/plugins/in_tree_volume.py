"""Define what a translator does, and translate the topology of persistent volumes.

Go: k8s.io/csi-translation-lib/plugins/in_tree_volume.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Protocol

from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1

# This text separates the zones in a label of a volume with several zones.
LABEL_MULTI_ZONE_DELIMITER = "__"


class InTreePlugin(Protocol):
    """Define how to translate the volumes of one plugin.

    All methods are thread-safe; the translating methods raise ValueError.
    """

    IN_TREE_PLUGIN_NAME: ClassVar[str]

    def can_support(self, pv: v1.PersistentVolume) -> bool: ...

    def can_support_inline(self, volume: v1.Volume) -> bool: ...

    def translate_in_tree_pv_to_csi(self, pv: v1.PersistentVolume) -> v1.PersistentVolume:
        """Return the translated persistent volume; the argument may be changed in place."""
        ...

    def translate_in_tree_inline_volume_to_csi(self, volume: v1.Volume, pod_namespace: str) -> v1.PersistentVolume:
        """Return a new persistent volume.

        Its name must be unique for each disk, because the staging path contains the name.
        """
        ...


def inline_volume(name: str, source: v1.CSIPersistentVolumeSource, access_mode: str) -> v1.PersistentVolume:
    """Return the persistent volume for an inline volume of a pod."""
    spec = v1.PersistentVolumeSpec(csi=source, access_modes=[access_mode])
    return v1.PersistentVolume(metadata=metav1.ObjectMeta(name=name), spec=spec)


def get_zones_from_labels(pv: v1.PersistentVolume) -> list[str]:
    """Return the zones in the labels of the persistent volume."""
    label = pv.metadata.labels.get(v1.LABEL_FAILURE_DOMAIN_BETA_ZONE) or pv.metadata.labels.get(
        v1.LABEL_TOPOLOGY_ZONE, ""
    )
    return label.split(LABEL_MULTI_ZONE_DELIMITER) if label else []


def translate_topology_from_in_tree_to_csi(pv: v1.PersistentVolume, csi_topology_key: str) -> None:
    """Rename the zone key of the node affinity to the driver's key, or add the zones of the labels if it has none.

    A beta region key becomes the current one, because otherwise the scheduler would not place the volume's pods on
    nodes that have only the current labels.
    """
    zone_label, region_label = get_topology_label(pv)
    if get_topology_values(pv, zone_label):
        replace_topology(pv, zone_label, csi_topology_key)
    elif zone_label in pv.metadata.labels:
        add_topology(pv, csi_topology_key, pv.metadata.labels[zone_label].split(LABEL_MULTI_ZONE_DELIMITER))
    if region_label == v1.LABEL_FAILURE_DOMAIN_BETA_REGION:
        replace_topology(pv, region_label, v1.LABEL_TOPOLOGY_REGION)


def get_topology_label(pv: v1.PersistentVolume) -> tuple[str, str]:
    """Return the zone and region keys that the persistent volume uses in its node affinity, or else in its labels."""
    keys = {requirement.key for requirement in _requirements(pv)}
    for known in (keys, pv.metadata.labels):
        if v1.LABEL_TOPOLOGY_ZONE in known:
            return v1.LABEL_TOPOLOGY_ZONE, v1.LABEL_TOPOLOGY_REGION
        if v1.LABEL_FAILURE_DOMAIN_BETA_ZONE in known:
            return v1.LABEL_FAILURE_DOMAIN_BETA_ZONE, v1.LABEL_FAILURE_DOMAIN_BETA_REGION
    return v1.LABEL_TOPOLOGY_ZONE, v1.LABEL_TOPOLOGY_REGION


def get_topology_values(pv: v1.PersistentVolume, key: str) -> list[str]:
    """Return the sorted values that the node affinity has for the key.

    The result means "any of these": no driver supports volumes that need two zones at the same time.
    """
    return sorted({value for found in _requirements(pv) if found.key == key for value in found.values})


def replace_topology(pv: v1.PersistentVolume, old_key: str, new_key: str) -> None:
    """Rename a key of the node affinity."""
    for requirement in _requirements(pv):
        if requirement.key == old_key:
            requirement.key = new_key


def add_topology(pv: v1.PersistentVolume, topology_key: str, zones: list[str]) -> None:
    """Make each term of the node affinity require one of the zones."""
    zones = sorted({zone.strip() for zone in zones} - {""})
    if not zones:
        return
    if pv.spec.node_affinity is None:
        pv.spec.node_affinity = v1.VolumeNodeAffinity()
    if pv.spec.node_affinity.required is None:
        pv.spec.node_affinity.required = v1.NodeSelector()
    terms = pv.spec.node_affinity.required.node_selector_terms
    if not terms:
        terms = pv.spec.node_affinity.required.node_selector_terms = [v1.NodeSelectorTerm()]
    for term in terms:
        requirement = v1.NodeSelectorRequirement(key=topology_key, operator="In", values=zones)
        term.match_expressions = [*term.match_expressions, requirement]


def _requirements(pv: v1.PersistentVolume) -> Iterator[v1.NodeSelectorRequirement]:
    affinity = pv.spec.node_affinity
    if affinity is not None and affinity.required is not None:
        for term in affinity.required.node_selector_terms:
            yield from term.match_expressions
