"""Test the documents that a manifest directory may hold."""

from __future__ import annotations

import base64

import pytest

from kubelet.config import common, objects
from pkg.api.core import v1

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  imagePullSecrets: [{name: pull}]
  containers:
  - {name: c, image: i, envFrom: [{configMapRef: {name: env}}]}
  volumes:
  - {name: a, configMap: {name: env}}
  - {name: b, secret: {secretName: s}}
  - {name: c, projected: {sources: [{secret: {name: s}}, {configMap: {name: env}}, {downwardAPI: {}}]}}
  - {name: d, persistentVolumeClaim: {claimName: data}}
"""
CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: env}
data: {COLOR: blue}
binaryData: {logo: AAEC}
"""
SECRET = """
apiVersion: v1
kind: Secret
metadata: {name: s, namespace: prod}
data: {a: b25l, b: b25l}
stringData: {b: two}
"""
CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""
VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /srv}}
"""


def decode(*documents: str) -> objects.Documents:
    complete = lambda pod: common.apply_defaults(pod, "/m/x.yaml", True, "n1")  # noqa: E731
    return objects.try_decode_documents("\n---\n".join(documents).encode(), complete)


def test_all_kinds_in_one_file() -> None:
    documents = decode(CONFIG_MAP, SECRET, "\n", CLAIM, VOLUME, POD)
    assert documents.faults == []
    assert [pod.metadata.name for pod in documents.pods] == ["web-n1"]
    config_map, secret, claim, volume = documents.objects
    assert isinstance(config_map, v1.ConfigMap) and config_map.metadata.namespace == "default"
    assert config_map.data == {"COLOR": "blue"} and config_map.binary_data == {"logo": b"\0\1\2"}
    assert isinstance(secret, v1.Secret) and secret.metadata.namespace == "prod" and secret.type == "Opaque"
    assert secret.data == {"a": b"one", "b": b"two"} and secret.string_data == {}
    assert isinstance(claim, v1.PersistentVolumeClaim) and claim.spec.volume_mode == "Filesystem"
    assert isinstance(volume, v1.PersistentVolume) and volume.metadata.namespace == ""


def test_json() -> None:
    documents = decode('{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "b"}}')
    assert documents.faults == [] and len(documents.objects) == 1


def test_data_as_people_write_it() -> None:
    wrapped = SECRET.replace("a: b25l", 'a: "b2\\n5l\\r\\n", empty: ')
    [secret] = decode(wrapped).objects
    assert isinstance(secret, v1.Secret) and secret.data == {"a": b"one", "b": b"two", "empty": b""}
    [config_map] = decode(CONFIG_MAP.replace("blue", "")).objects
    assert isinstance(config_map, v1.ConfigMap) and config_map.data == {"COLOR": ""}
    [config_map] = decode(CONFIG_MAP.replace("data: {COLOR: blue}", "data:")).objects
    assert isinstance(config_map, v1.ConfigMap) and config_map.data == {}


def test_each_document_counts_by_itself() -> None:
    documents = decode(CONFIG_MAP, "{kind: Service, apiVersion: v1}", POD, "{kind: ConfigMap, apiVersion: v1}")
    assert (len(documents.pods), len(documents.objects)) == (1, 1)
    assert [str(fault) for fault in documents.faults] == [
        "document 2: expected one of Pod, ConfigMap, Secret, PersistentVolumeClaim, PersistentVolume of v1, "
        "got Service of v1",
        "document 4: invalid ConfigMap without a name: metadata.name: Required value: name or generateName is required",
    ]


BIG = base64.b64encode(b"x" * (v1.MAX_SECRET_SIZE + 1)).decode()
FAULTS: list[tuple[str, str, str]] = [
    ("not base64", SECRET.replace("a: b25l", "a: '%%%'"), "invalid Secret s: data[a]: illegal base64 data"),
    ("bad padding", SECRET.replace("a: b25l", "a: b25"), "invalid Secret s: data[a]: illegal base64 data"),
    (
        "binaryData not base64",
        CONFIG_MAP.replace("AAEC", "x"),
        "invalid ConfigMap env: binaryData[logo]: illegal base64",
    ),
    (
        "number in a config map",
        CONFIG_MAP.replace("blue", "8080"),
        "invalid ConfigMap env: data[COLOR]: expected text, got a number (quote the value)",
    ),
    ("boolean", SECRET.replace("two", "yes"), "stringData[b]: expected text, got a boolean"),
    (
        "data of another kind",
        CONFIG_MAP.replace("{COLOR: blue}", "[]"),
        "invalid ConfigMap env: Expected `object`, got",
    ),
    ("key that is a path", CONFIG_MAP.replace("COLOR", "a/b"), 'data[a/b]: Invalid value: "a/b"'),
    ("key in both", CONFIG_MAP.replace("logo", "COLOR"), "data[COLOR]: Invalid value"),
    ("too large", SECRET.replace("b25l, b", f"{BIG}, b"), "data: Too long: may not be more than 1048576 bytes"),
    (
        "pull secret without data",
        SECRET + "type: kubernetes.io/dockerconfigjson",
        "data[.dockerconfigjson]: Required value",
    ),
    (
        "pull secret that is no JSON",
        SECRET.replace("b: two", "'.dockerconfigjson': hush") + "type: kubernetes.io/dockerconfigjson",
        'data[.dockerconfigjson]: Invalid value: "<secret contents redacted>"',
    ),
    ("certificate without key", SECRET + "type: kubernetes.io/tls", "data[tls.crt]: Required value"),
    ("name", CONFIG_MAP.replace("env", "No_Name"), 'metadata.name: Invalid value: "No_Name"'),
    ("claim without size", CLAIM.replace("storage: 1Gi", ""), "spec.resources[storage]: Required value"),
    ("claim of unknown mode", CLAIM.replace("ReadWriteOnce", "Mine"), "spec.accessModes: Unsupported value"),
    ("volume of nothing", VOLUME.replace("hostPath: {path: /srv}", ""), "spec: Required value: must specify a volume"),
    ("volume that climbs", VOLUME.replace("/srv", "/srv/.."), "spec.hostPath.path: Invalid value"),
    (
        "two sources",
        VOLUME.replace("hostPath:", "local: {path: /x}, hostPath:"),
        "spec.local: Forbidden: may not specify more than 1 volume type",
    ),
    (
        "pod that needs more",
        POD.replace("imagePullSecrets: [{name: pull}]", "serviceAccountName: me"),
        "static pods may not reference serviceaccounts",
    ),
    (
        "token",
        POD.replace("{downwardAPI: {}}", "{serviceAccountToken: {path: t}}"),
        "serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set",
    ),
    ("no version", "{kind: ConfigMap}", "Object 'apiVersion' is missing"),
    ("text", "hello", "expected a map with apiVersion and kind, got str"),
]


@pytest.mark.parametrize(("text", "message"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
def test_faults(text: str, message: str) -> None:
    documents = decode(text)
    assert documents.pods == [] and documents.objects == []
    [fault] = documents.faults
    assert message in str(fault) and "hush" not in str(fault)


@pytest.mark.parametrize("text", ["", "---\n---\n", "a: ["])
def test_no_documents(text: str) -> None:
    with pytest.raises(common.NotParsedError):
        decode(text)


_DEEP = "[" * 100_000


def complete(pod: v1.Pod) -> None:
    common.apply_defaults(pod, "/manifests/all.yaml", True, "node")


def test_deep_json_within_a_document_is_a_fault_of_that_document() -> None:
    """Deep JSON is a fault of its document even in a string, where the document's depth limit does not apply."""
    secret = {".dockerconfigjson": base64.b64encode(_DEEP.encode()).decode()}
    texts = [
        f"apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\ntype: kubernetes.io/dockerconfigjson\ndata: {secret}\n",
        POD.replace(
            "{name: web}", "{name: deep, annotations: {scheduler.alpha.kubernetes.io/tolerations: '" + _DEEP + "'}}"
        ),
        POD,
    ]
    found = objects.try_decode_documents("---\n".join(texts).encode(), complete)
    assert [pod.metadata.name for pod in found.pods] == ["web-node"]
    assert len(found.faults) == 2 and all(len(str(fault)) <= common.MAX_FAULT_LENGTH + 3 for fault in found.faults)
