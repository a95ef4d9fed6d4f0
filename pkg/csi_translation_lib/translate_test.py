"""Test the translation of volumes of removed in-tree plugins.

Go: k8s.io/csi-translation-lib/plugins
"""

from __future__ import annotations

import pytest

from pkg import csi_translation_lib
from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.csi_translation_lib.plugins import gce_pd
from pkg.csi_translation_lib.plugins.aws_ebs import kubernetes_volume_id_to_ebs_volume_id
from pkg.csi_translation_lib.plugins.azure_file import get_storage_account_name

ZONE, REGION = v1.LABEL_TOPOLOGY_ZONE, v1.LABEL_TOPOLOGY_REGION
BETA_ZONE, BETA_REGION = v1.LABEL_FAILURE_DOMAIN_BETA_ZONE, v1.LABEL_FAILURE_DOMAIN_BETA_REGION


def pv(
    labels: dict[str, str] | None = None, affinity: list[tuple[str, list[str]]] | None = None, **spec: object
) -> v1.PersistentVolume:
    node_affinity = None
    if affinity is not None:
        expressions = [v1.NodeSelectorRequirement(key=key, operator="In", values=values) for key, values in affinity]
        selector = v1.NodeSelector(node_selector_terms=[v1.NodeSelectorTerm(match_expressions=expressions)])
        node_affinity = v1.VolumeNodeAffinity(required=selector)
    return v1.PersistentVolume(
        metadata=metav1.ObjectMeta(name="pv", labels=labels or {}),
        spec=v1.PersistentVolumeSpec(node_affinity=node_affinity, **spec),  # type: ignore[arg-type]
    )


def topology(volume: v1.PersistentVolume) -> list[tuple[str, list[str]]]:
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return []
    terms = affinity.required.node_selector_terms
    return [(each.key, each.values) for term in terms for each in term.match_expressions]


AWS = v1.AWSElasticBlockStoreVolumeSource(
    volume_id="aws://us-west-2a/vol-1", fs_type="xfs", partition=1, read_only=True
)
GCE = v1.GCEPersistentDiskVolumeSource(pd_name="disk", partition=2)
CINDER = v1.CinderVolumeSource(volume_id="c", fs_type="ext4")
DISK = v1.AzureDiskVolumeSource(
    disk_name="d", disk_uri="/subscriptions/s/disks/d", kind="managed", caching_mode="None", fs_type="ext4"
)
FILE = v1.AzureFileVolumeSource(secret_name="azure-storage-account-acc-secret", share_name="share")
PORTWORX = v1.PortworxVolumeSource(volume_id="p", fs_type="ext4", read_only=True)
VSPHERE = v1.VsphereVirtualDiskVolumeSource(volume_path="[ds] kube/v.vmdk", storage_policy_name="gold")


@pytest.mark.parametrize(
    ("volume", "name", "mode", "csi"),
    [
        (
            v1.Volume(name="v", aws_elastic_block_store=AWS),
            "ebs.csi.aws.com-vol-1",
            v1.READ_WRITE_ONCE,
            v1.CSIPersistentVolumeSource(
                driver="ebs.csi.aws.com",
                volume_handle="vol-1",
                fs_type="xfs",
                read_only=True,
                volume_attributes={"partition": "1"},
            ),
        ),
        (
            v1.Volume(name="v", gce_persistent_disk=GCE),
            "pd.csi.storage.gke.io-disk",
            v1.READ_WRITE_ONCE,
            v1.CSIPersistentVolumeSource(
                driver="pd.csi.storage.gke.io",
                volume_handle="projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk",
                volume_attributes={"partition": "2"},
            ),
        ),
        (
            v1.Volume(name="v", cinder=CINDER),
            "cinder.csi.openstack.org-c",
            v1.READ_WRITE_ONCE,
            v1.CSIPersistentVolumeSource(driver="cinder.csi.openstack.org", volume_handle="c", fs_type="ext4"),
        ),
        (
            v1.Volume(name="v", azure_disk=DISK),
            "~subscriptions~s~disks~d",
            v1.READ_WRITE_ONCE,
            v1.CSIPersistentVolumeSource(
                driver="disk.csi.azure.com",
                volume_handle="/subscriptions/s/disks/d",
                fs_type="ext4",
                volume_attributes={"kind": "Managed", "cachingmode": "None", "fstype": "ext4"},
            ),
        ),
        (
            v1.Volume(name="v", azure_file=FILE),
            "#acc#share#v#ns",
            v1.READ_WRITE_MANY,
            v1.CSIPersistentVolumeSource(
                driver="file.csi.azure.com",
                volume_handle="#acc#share#v#ns",
                volume_attributes={"sharename": "share"},
                node_stage_secret_ref=v1.SecretReference(name="azure-storage-account-acc-secret", namespace="ns"),
            ),
        ),
        (
            v1.Volume(name="v", portworx_volume=PORTWORX),
            "pxd.portworx.com-p",
            v1.READ_ONLY_MANY,
            v1.CSIPersistentVolumeSource(driver="pxd.portworx.com", volume_handle="p", fs_type="ext4"),
        ),
        (
            v1.Volume(name="v", vsphere_volume=VSPHERE),
            "csi.vsphere.vmware.com-[ds] kube~v.vmdk",
            v1.READ_WRITE_ONCE,
            v1.CSIPersistentVolumeSource(
                driver="csi.vsphere.vmware.com",
                volume_handle="[ds] kube/v.vmdk",
                volume_attributes={"storagepolicyname": "gold"},
            ),
        ),
    ],
    ids=lambda value: value.driver if isinstance(value, v1.CSIPersistentVolumeSource) else None,
)
def test_translate_in_tree_inline_volume_to_csi(
    volume: v1.Volume, name: str, mode: str, csi: v1.CSIPersistentVolumeSource
) -> None:
    translated = csi_translation_lib.translate_in_tree_inline_volume_to_csi(volume, "ns")
    assert translated.spec.csi == csi
    assert (translated.metadata.name, translated.spec.access_modes) == (name, [mode])
    assert translated.spec.volume_mode == v1.PERSISTENT_VOLUME_FILESYSTEM


def test_name_of_an_inline_volume_leads_nowhere_else() -> None:
    disk = v1.VsphereVirtualDiskVolumeSource(volume_path="../../../etc")
    translated = csi_translation_lib.translate_in_tree_inline_volume_to_csi(v1.Volume(vsphere_volume=disk), "ns")
    assert "/" not in translated.metadata.name
    uri = v1.AzureDiskVolumeSource(disk_uri="..")
    with pytest.raises(ValueError, match='volume "v" has no usable name'):
        csi_translation_lib.translate_in_tree_inline_volume_to_csi(v1.Volume(name="v", azure_disk=uri), "ns")


def test_what_no_driver_serves_is_not_translated() -> None:
    volume, other = v1.Volume(name="v", empty_dir=v1.EmptyDirVolumeSource()), pv()
    assert csi_translation_lib.get_in_tree_plugin_name_from_spec(None, volume) == ""
    assert csi_translation_lib.get_in_tree_plugin_name_from_spec(other, None) == ""
    with pytest.raises(ValueError, match="could not find in-tree plugin translation logic"):
        csi_translation_lib.translate_in_tree_inline_volume_to_csi(volume, "ns")
    with pytest.raises(ValueError, match="could not find in-tree plugin translation logic"):
        csi_translation_lib.translate_in_tree_pv_to_csi(other)


@pytest.mark.parametrize(
    ("labels", "affinity", "expected"),
    [
        ({}, None, []),
        ({ZONE: "a"}, None, [("driver/zone", ["a"])]),
        ({BETA_ZONE: "a__b"}, None, [("driver/zone", ["a", "b"])]),
        ({ZONE: "a"}, [(ZONE, ["b"])], [("driver/zone", ["b"])]),
        ({}, [(ZONE, ["a"]), (REGION, ["r"])], [("driver/zone", ["a"]), (REGION, ["r"])]),
        ({}, [(BETA_ZONE, ["a"]), (BETA_REGION, ["r"])], [("driver/zone", ["a"]), (REGION, ["r"])]),
        ({ZONE: "a"}, [("other", ["o"])], [("other", ["o"]), ("driver/zone", ["a"])]),
        ({ZONE: "  "}, None, []),
    ],
)
def test_translate_topology_from_in_tree_to_csi(
    labels: dict[str, str], affinity: list[tuple[str, list[str]]] | None, expected: list[tuple[str, list[str]]]
) -> None:
    original = pv(labels, affinity, cinder=v1.CinderPersistentVolumeSource(volume_id="c"))
    before = v1.deepcopy(original)
    translated = csi_translation_lib.translate_in_tree_pv_to_csi(original)
    key = "topology.cinder.csi.openstack.org/zone"
    assert topology(translated) == [(key if name == "driver/zone" else name, values) for name, values in expected]
    assert translated.spec.cinder is None and original == before, "the object of the API is shared"


@pytest.mark.parametrize(
    ("labels", "handle"),
    [
        ({}, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"),
        ({ZONE: "us-east1-a"}, "projects/UNSPECIFIED/zones/us-east1-a/disks/disk"),
        ({BETA_ZONE: "us-east1-a__us-east1-b"}, "projects/UNSPECIFIED/regions/us-east1/disks/disk"),
    ],
)
def test_disk_of_google_tells_its_zones(labels: dict[str, str], handle: str) -> None:
    translated = csi_translation_lib.translate_in_tree_pv_to_csi(pv(labels, gce_persistent_disk=GCE))
    assert translated.spec.csi is not None and translated.spec.csi.volume_handle == handle


@pytest.mark.parametrize("label", ["us-east1-a__us-west1-a", "a__b"])
def test_disk_of_google_with_zones_of_no_one_region(label: str) -> None:
    with pytest.raises(ValueError, match="failed to get region from zones"):
        csi_translation_lib.translate_in_tree_pv_to_csi(pv({ZONE: label}, gce_persistent_disk=GCE))


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        ([], []),
        ([v1.READ_WRITE_MANY], [v1.READ_WRITE_ONCE]),
        ([v1.READ_ONLY_MANY], [v1.READ_ONLY_MANY]),
        ([v1.READ_ONLY_MANY, v1.READ_WRITE_ONCE], [v1.READ_WRITE_ONCE]),
        ([v1.READ_ONLY_MANY, v1.READ_WRITE_MANY], [v1.READ_WRITE_ONCE]),
        (["Other"], [v1.READ_WRITE_ONCE]),
    ],
)
def test_backward_compatible_access_modes(modes: list[str], expected: list[str]) -> None:
    assert gce_pd.backward_compatible_access_modes(modes) == expected


@pytest.mark.parametrize(
    ("kubernetes_id", "expected"),
    [("vol-1", "vol-1"), ("aws:///vol-1", "vol-1"), ("aws://us-west-2a/vol-1", "vol-1"), ("aws:///a/vol-1", "")],
)
def test_kubernetes_volume_id_to_ebs_volume_id(kubernetes_id: str, expected: str) -> None:
    if expected:
        assert kubernetes_volume_id_to_ebs_volume_id(kubernetes_id) == expected
        return
    with pytest.raises(ValueError, match="Invalid format for AWS volume"):
        kubernetes_volume_id_to_ebs_volume_id(kubernetes_id)


def test_files_of_azure_need_the_namespace_of_their_secret() -> None:
    source = v1.AzureFilePersistentVolumeSource(secret_name="s", share_name="share")
    with pytest.raises(ValueError, match="could not find a secret namespace"):
        csi_translation_lib.translate_in_tree_pv_to_csi(pv(azure_file=source))
    claimed = pv(azure_file=source, claim_ref=v1.ObjectReference(namespace="ns"))
    claimed.metadata.annotations = {"kubernetes.io/azure-file-resource-group": "rg"}
    csi = csi_translation_lib.translate_in_tree_pv_to_csi(claimed).spec.csi
    assert csi is not None and csi.volume_handle == "rg#s#share#pv#ns"
    assert csi.node_stage_secret_ref == v1.SecretReference(name="s", namespace="ns")


def test_unmanaged_disk_of_azure_is_refused() -> None:
    source = v1.AzureDiskVolumeSource(disk_uri="https://blob", kind="Shared")
    with pytest.raises(ValueError, match=r"kind\(Shared\) is not supported in csi migration"):
        csi_translation_lib.translate_in_tree_pv_to_csi(pv(azure_disk=source))


def test_secret_of_portworx() -> None:
    volume = pv(portworx_volume=PORTWORX)
    volume.metadata.annotations = {"openstorage.io/auth-secret-name": "s", "openstorage.io/auth-secret-namespace": "ns"}
    csi = csi_translation_lib.translate_in_tree_pv_to_csi(volume).spec.csi
    assert csi is not None and csi.node_publish_secret_ref == v1.SecretReference(name="s", namespace="ns")
    assert csi.node_stage_secret_ref == csi.node_expand_secret_ref == csi.node_publish_secret_ref


def test_topology_of_vsphere() -> None:
    labelled = pv({ZONE: "z", REGION: "r"}, vsphere_volume=VSPHERE)
    named = pv({}, [(BETA_ZONE, ["z"]), (BETA_REGION, ["r"])], vsphere_volume=VSPHERE)
    for volume in (labelled, named):
        assert topology(csi_translation_lib.translate_in_tree_pv_to_csi(volume)) == [
            ("topology.csi.vmware.com/zone", ["z"]),
            ("topology.csi.vmware.com/region", ["r"]),
        ]


@pytest.mark.parametrize(
    ("secret_name", "account"),
    [
        ("azure-storage-account-acc-secret", "acc"),
        ("x-azure-storage-account-a-secret-b-secret-y", "a-secret-b"),
        ("azure-storage-account-azure-storage-account-a-secret", "azure-storage-account-a"),
        ("azure-storage-account--secret", "azure-storage-account--secret"),
        ("azure-storage-account-a\nazure-storage-account-b-secret", "b"),
        ("acc", "acc"),
        # A regular expression would take minutes, during which no other thread would run.
        pytest.param("azure-storage-account-" * 60_000, "azure-storage-account-" * 60_000, id="long"),
    ],
)
def test_storage_account(secret_name: str, account: str) -> None:
    assert get_storage_account_name(secret_name) == account
