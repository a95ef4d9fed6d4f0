"""Test the decoding of manifests."""

from __future__ import annotations

import json
import re

import pytest
from framework import memory

from kubelet import types as kubetypes
from kubelet.config import common
from pkg import klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec

MINIMAL = b"""
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: c, image: busybox}]}
"""


def file_defaults(pod: v1.Pod) -> None:
    common.apply_defaults(pod, "/manifests/web.yaml", True, "node-1")


def no_default(pod: v1.Pod) -> None:
    pod.metadata.namespace = pod.metadata.namespace or "default"


def full_pod() -> v1.Pod:
    return v1.Pod(
        metadata=metav1.ObjectMeta(name="test", uid=types.UID("12345"), namespace="mynamespace"),
        spec=v1.PodSpec(
            restart_policy="Always",
            dns_policy="ClusterFirst",
            termination_grace_period_seconds=30,
            containers=[
                v1.Container(
                    name="image",
                    image="test/image",
                    image_pull_policy="IfNotPresent",
                    termination_message_path="/dev/termination-log",
                    termination_message_policy="File",
                )
            ],
            security_context=v1.PodSecurityContext(),
            scheduler_name="default-scheduler",
            enable_service_links=True,
        ),
        status=v1.PodStatus(pod_ip="1.2.3.4", pod_ips=[v1.PodIP(ip="1.2.3.4")]),
    )


def encode(obj: v1.Pod | v1.PodList, kind: str) -> bytes:
    obj.api_version, obj.kind = "v1", kind
    return codec.encode_json(obj)


def test_decode_single_pod() -> None:
    assert common.try_decode_single_pod(encode(full_pod(), "Pod"), no_default) == full_pod()


def test_decode_pod_list() -> None:
    data = encode(v1.PodList(items=[full_pod()]), "PodList")
    assert common.try_decode_pod_list(data, no_default) == [full_pod()]
    with pytest.raises(common.NotParsedError, match="expected Pod of v1, got PodList of v1"):
        common.try_decode_single_pod(data, no_default)


def test_apply_defaults() -> None:
    pod = common.try_decode_single_pod(MINIMAL, file_defaults)
    assert pod.metadata.name == "web-node-1"
    assert pod.metadata.namespace == "default"
    assert re.fullmatch("[0-9a-f]{32}", pod.metadata.uid)
    assert pod.metadata.annotations == {kubetypes.CONFIG_HASH_ANNOTATION_KEY: pod.metadata.uid}
    assert pod.spec.node_name == "node-1"
    assert pod.spec.tolerations == [v1.Toleration(operator="Exists", effect="NoExecute")]
    assert pod.status.phase == "Pending"


def test_url_pods_are_not_tolerant() -> None:
    pod = common.try_decode_single_pod(MINIMAL, lambda p: common.apply_defaults(p, "http://x", False, "n"))
    assert pod.spec.tolerations == []


def test_explicit_uid_is_kept() -> None:
    data = MINIMAL.replace(b"name: web", b"name: web, uid: mine")
    pod = common.try_decode_single_pod(data, file_defaults)
    assert pod.metadata.uid == pod.metadata.annotations[kubetypes.CONFIG_HASH_ANNOTATION_KEY] == "mine"


@pytest.mark.parametrize("uid", ["..", ".", "../../x", "a/b", "/", "a\0b", "a\n", " ", "*", "u" * 129])
def test_uid_that_is_no_name_of_a_directory(uid: str) -> None:
    data = MINIMAL.replace(b"name: web", b"name: web, uid: " + json.dumps(uid).encode())
    with pytest.raises(common.InvalidPodError, match=r"^invalid pod: metadata\.uid: Invalid value: "):
        common.try_decode_single_pod(data, file_defaults)


def _uid(data: bytes, source: str = "/m/web.yaml", is_file: bool = True, node: str = "n") -> str:
    pod = common.try_decode_single_pod(data, lambda p: common.apply_defaults(p, source, is_file, node))
    return pod.metadata.uid


def test_uid_depends_on_pod_and_origin_only() -> None:
    uid = _uid(MINIMAL)
    assert _uid(b"# a comment\n" + MINIMAL.replace(b"kind: Pod\n", b"") + b"kind: Pod\n") == uid
    # A manifest that sets a default value explicitly is the same pod.
    assert _uid(MINIMAL + b"  \n") == uid
    explicit = MINIMAL.replace(b"spec: {", b"spec: {restartPolicy: Always, ")
    assert _uid(explicit) == uid
    others = {
        _uid(MINIMAL.replace(b"busybox", b"nginx")),
        _uid(MINIMAL, source="/m/other.yaml"),
        _uid(MINIMAL, node="n2"),
        _uid(MINIMAL, is_file=False),
    }
    assert len(others) == 4 and uid not in others


NOT_PARSED = [
    ("not yaml", b"a: [1", "yaml: line 2: did not find expected ',' or ']'"),
    ("empty", b"", "expected a map with apiVersion and kind, got NoneType"),
    ("a list", b"[1, 2]", "expected a map with apiVersion and kind, got list"),
    ("no kind", b"apiVersion: v1", "Object 'Kind' is missing"),
    ("no version", b"kind: Pod", "Object 'apiVersion' is missing"),
    ("another kind", b"{apiVersion: v1, kind: Service}", "expected Pod of v1, got Service of v1"),
    ("another version", b"{apiVersion: v1beta9, kind: Pod}", "expected Pod of v1, got Pod of v1beta9"),
    (
        "wrong type",
        b"{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [{name: 7}]}}",
        "Expected `str`, got `int` - at `$.spec.containers[0].name`",
    ),
    ("several documents", MINIMAL + b"---\n" + MINIMAL, "the file holds several documents, expected one"),
    ("binary", b"\x00\xff\xfe", "yaml: "),
    ("deep", b"[" * 100_000, "exceeded max depth"),
]


@pytest.mark.parametrize(("data", "message"), [c[1:] for c in NOT_PARSED], ids=[c[0] for c in NOT_PARSED])
def test_not_parsed(data: bytes, message: str) -> None:
    with pytest.raises(common.NotParsedError, match=re.escape(message)):
        common.try_decode_single_pod(data, file_defaults)


def test_no_name() -> None:
    with pytest.raises(common.InvalidPodError, match="invalid pod: name is needed for the pod"):
        common.try_decode_single_pod(b"{apiVersion: v1, kind: Pod}", file_defaults)


def test_every_fault_is_named() -> None:
    data = b"""
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  restartPolicy: Sometimes
  containers:
  - {name: UPPER, image: "", ports: [{containerPort: 70000}]}
"""
    with pytest.raises(common.InvalidPodError) as caught:
        common.try_decode_single_pod(data, file_defaults)
    fields = [str(e.field) for e in caught.value.errors]
    assert fields == [
        "spec.containers[0].name",
        "spec.containers[0].image",
        "spec.containers[0].ports[0].containerPort",
        "spec.restartPolicy",
    ]
    assert all(f in str(caught.value) for f in fields)


def test_nulls_mean_unset_and_numbers_are_quantities() -> None:
    data = b"""
apiVersion: v1
kind: Pod
metadata: {name: web, labels: null, creationTimestamp: null}
spec:
  containers:
  - name: c
    image: busybox
    command: null
    args: [2024-01-01, "12", 12:30]
    resources: {limits: {cpu: 1, memory: 1e3}}
"""
    pod = common.try_decode_single_pod(data, file_defaults)
    container = pod.spec.containers[0]
    assert container.args == ["2024-01-01", "12", "12:30"]
    assert container.resources.limits["cpu"].value() == 1
    assert container.resources.limits["memory"].value() == 1000
    assert container.command == [] and pod.metadata.labels == {}


def test_unknown_fields_are_warned_about(capfd: pytest.CaptureFixture[str]) -> None:
    data = MINIMAL.replace(b"image: busybox", b"image: busybox, imagePolicy: x, env: [{name: a, vale: b}]")
    assert common.try_decode_single_pod(data, file_defaults).metadata.name == "web-node-1"
    klog.flush()
    logged = capfd.readouterr().err
    assert 'field="spec.containers[0].imagePolicy"' in logged
    assert 'field="spec.containers[0].env[0].vale"' in logged
    assert logged.count("Unknown field") == 2


REFERENCES = [
    ("secrets", "containers: [{name: c, image: i, envFrom: [{secretRef: {name: s}}]}]"),
    ("secrets", "imagePullSecrets: [{name: s}], containers: [{name: c, image: i}]"),
    (
        "configmaps",
        "containers: [{name: c, image: i, env: [{name: e, valueFrom: {configMapKeyRef: {name: m, key: k}}}]}]",
    ),
    ("serviceaccounts", "serviceAccountName: sa, containers: [{name: c, image: i}]"),
    ("serviceaccounts", "serviceAccount: sa, containers: [{name: c, image: i}]"),
    (
        "resourceclaims",
        "resourceClaims: [{name: r, resourceClaimName: x}], containers: [{name: c, image: i}]",
    ),
    (
        "clustertrustbundles",
        "volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {name: b, path: p}}]}}],"
        " containers: [{name: c, image: i}]",
    ),
    (
        "persistentvolumeclaims",
        "volumes: [{name: v, persistentVolumeClaim: {claimName: p}}], containers: [{name: c, image: i}]",
    ),
    ("secrets", "volumes: [{name: v, secret: {secretName: s}}], containers: [{name: c, image: i}]"),
    (
        "csidrivers (via CSI volumes)",
        "volumes: [{name: v, csi: {driver: d.example.com}}], containers: [{name: c, image: i}]",
    ),
]


@pytest.mark.parametrize(("resource", "spec"), REFERENCES)
def test_static_pods_may_not_reference_api_objects(resource: str, spec: str) -> None:
    data = f"{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{{spec}}}}}".encode()
    with pytest.raises(common.StaticPodReferenceError) as caught:
        common.try_decode_single_pod(data, file_defaults)
    assert str(caught.value) == f"static pods may not reference {resource}"


def test_container_restart_policy_is_allowed() -> None:
    data = MINIMAL.replace(b"image: busybox", b"image: busybox, restartPolicy: Always")
    assert common.try_decode_single_pod(data, file_defaults).spec.containers[0].restart_policy == "Always"


def test_generate_pod_name() -> None:
    assert common.generate_pod_name("web", "Node-A") == "web-node-a"


def _claims(prefix: str) -> str:
    return ",".join(f'{{"name":"{prefix}{i}","request":"r"}}' for i in range(10_000))


def _with(field: str, value: str, claims: str = "") -> str:
    spec = f'{{"containers":[{{"name":"c","image":"i"}}],"resourceClaims":[{claims}],"{field}":{value}}}'
    return f'{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p"}},"spec":{spec}}}'


_LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
)
HOSTILE_MANIFESTS = {
    "aliases of aliases": lambda: _LAUGHS,
    "many small values": lambda: '{"a": [' + "1," * 5_000_000 + "1]}",
    "a deep document": lambda: "[" * 10_000_000,
    "a number of many digits": lambda: MINIMAL.decode() + "  priority: " + "9" * 10_000_000,
    "many empty containers": lambda: _with("containers", "[" + "{}," * 900_000 + "{}]"),
    "many equal constraints": lambda: _with("topologySpreadConstraints", "[" + "{}," * 16_000 + "{}]"),
    "many claims of which none is the pod's": lambda: _with(
        "containers", f'[{{"name":"c","image":"i","resources":{{"claims":[{_claims("a")}]}}}}]', _claims("b")
    ),
    "one long name": lambda: MINIMAL.decode().replace("web", "w" * 10_000_000),
}


def decode_hostile(name: str) -> None:
    with pytest.raises((common.NotParsedError, common.InvalidPodError)):
        common.try_decode_single_pod(HOSTILE_MANIFESTS[name]().encode()[: common.MAX_CONFIG_LENGTH], file_defaults)


@pytest.mark.parametrize("name", HOSTILE_MANIFESTS)
def test_hostile_manifest_takes_a_bounded_amount_of_memory(name: str) -> None:
    """The bound holds for manifests of 10 MiB, which is the file source's limit, and includes the text itself."""
    assert memory.peak_growth("kubelet.config.common_test", "decode_hostile", name) < 128


def test_unknown_fields_are_gathered_by_pod() -> None:
    unknown: common.UnknownFields = {}
    item = b'{"metadata": {"name": "%s"}, "spec": {"containers": [{"name": "c", "image": "i", "%s": 1}]}}'
    items = b", ".join(item % pair for pair in ((b"a", b"comand"), (b"b", b"tty_"), (b"c", b"image")))
    data = b'{"kind": "PodList", "apiVersion": "v1", "items": [%s]}' % items.replace(b', "image": 1', b"")

    pods = common.try_decode_pod_list(data, file_defaults, unknown)

    by_name = {pod.metadata.name: unknown.get(pod.metadata.uid) for pod in pods}
    assert list(by_name.values()) == [["spec.containers[0].comand"], ["spec.containers[0].tty_"], None]


def test_faults_and_unknown_fields_are_told_in_few_words(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(common.InvalidPodError) as caught:
        common.try_decode_single_pod(MINIMAL.replace(b"web", b"_" * 100_000), no_default)
    assert len(str(caught.value)) < common.MAX_FAULT_LENGTH + 10
    unknown = b"".join(b"f%d: 1\n" % i for i in range(1000)) + b"g" * 1000 + b": 1\n"
    common.try_decode_single_pod(unknown + MINIMAL, no_default)
    klog.flush()
    logged = capfd.readouterr().err
    assert logged.count("Unknown field in manifest") == common.MAX_UNKNOWN_FIELDS and len(logged) < 100_000
