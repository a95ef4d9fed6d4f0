"""Test the store and its managers."""

from __future__ import annotations

import pytest

from kubelet import standalone
from pkg.api.core import v1
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec


def meta(name: str) -> metav1.ObjectMeta:
    return metav1.ObjectMeta(name=name, namespace="ns")


def config_map(name: str, value: str = "v") -> v1.ConfigMap:
    return v1.ConfigMap(metadata=meta(name), data={"k": value})


def secret(name: str) -> v1.Secret:
    return v1.Secret(metadata=meta(name), data={"k": b"v"})


def names(changed: set[standalone.Changed]) -> list[str]:
    return sorted(f"{key.kind.__name__} {key.namespace}/{key.name}" for key in changed)


def test_changes_are_told_and_only_they() -> None:
    store = standalone.ObjectStore()
    told: list[list[str]] = []
    store.follow(lambda changed: told.append(names(changed)))
    store.replace([config_map("a"), secret("a")])
    store.replace([config_map("a"), secret("a")])
    store.replace([config_map("a", "new"), secret("b")])
    store.replace([secret("b")])
    assert told == [
        ["ConfigMap ns/a", "Secret ns/a"],
        ["ConfigMap ns/a", "Secret ns/a", "Secret ns/b"],
        ["ConfigMap ns/a"],
    ]


def test_version_tells_whether_an_object_has_changed() -> None:
    store = standalone.ObjectStore()
    versions = []
    for value in ("v", "v", "new"):
        store.replace([config_map("a", value)])
        versions.append(store.get(v1.ConfigMap, "ns", "a").metadata.resource_version)
    assert versions[0] == versions[1] != versions[2]


def test_managers_have_the_present_state() -> None:
    store = standalone.ObjectStore()
    secrets, config_maps = standalone.SecretManager(store), standalone.ConfigMapManager(store)
    with pytest.raises(apierrors.StatusError, match=r'^secret "a" not found$') as caught:
        secrets.get_secret("ns", "a")
    assert apierrors.is_not_found(caught.value)
    store.replace([config_map("a"), secret("a")])
    assert secrets.get_secret("ns", "a").data == {"k": b"v"}
    assert config_maps.get_config_map("ns", "a").data == {"k": "v"}
    with pytest.raises(apierrors.StatusError, match=r'^configmap "a" not found$'):
        config_maps.get_config_map("default", "a")
    store.replace([])
    with pytest.raises(apierrors.StatusError, match="not found"):
        secrets.get_secret("ns", "a")


CONTAINER = {"name": "c", "image": "i"}
PODS: list[tuple[str, dict[str, object], str]] = [
    ("environment", {"containers": [CONTAINER | {"envFrom": [{"configMapRef": {"name": "x"}}]}]}, "ConfigMap"),
    ("pull secret", {"imagePullSecrets": [{"name": "x"}]}, "Secret"),
    ("volume", {"volumes": [{"name": "v", "configMap": {"name": "x"}}]}, "ConfigMap"),
    ("projected", {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "x"}}]}}]}, "Secret"),
    ("claim", {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]}, "PersistentVolumeClaim"),
    ("nothing", {"volumes": [{"name": "v", "emptyDir": {}}]}, ""),
    ("another name", {"imagePullSecrets": [{"name": "y"}]}, ""),
]


@pytest.mark.parametrize(("spec", "kind"), [row[1:] for row in PODS], ids=[row[0] for row in PODS])
def test_refers_to(spec: dict[str, object], kind: str) -> None:
    pod = v1.Pod(metadata=meta("p"), spec=codec.convert({"containers": [CONTAINER]} | spec, v1.PodSpec))
    kinds = (v1.ConfigMap, v1.Secret, v1.PersistentVolumeClaim)
    assert [k.__name__ for k in kinds if standalone.refers_to(pod, {standalone.Changed(k, "ns", "x")})] == (
        [kind] if kind else []
    )
    assert not any(standalone.refers_to(pod, {standalone.Changed(k, "other", "x")}) for k in kinds)


def test_volume_may_be_the_one_behind_a_claim() -> None:
    volume = {standalone.Changed(v1.PersistentVolume, "", "disk")}
    for source, expected in (({"persistentVolumeClaim": {"claimName": "x"}}, True), ({"emptyDir": {}}, False)):
        spec = codec.convert({"containers": [CONTAINER], "volumes": [{"name": "v", **source}]}, v1.PodSpec)
        assert standalone.refers_to(v1.Pod(metadata=meta("p"), spec=spec), volume) is expected
