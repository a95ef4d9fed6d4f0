"""Test labels, annotations and legacy log links.

Go: pkg/kubelet/kuberuntime/labels_test.go, legacy_test.go
"""

from __future__ import annotations

import pytest

from kubelet import container as kubecontainer
from kubelet.kuberuntime import labels, legacy
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1


def _pod() -> v1.Pod:
    return v1.Pod(
        metadata=metav1.ObjectMeta(
            name="test_pod",
            namespace="test_ns",
            uid=types.UID("test_uid"),
            labels={"foo": "bar"},
            annotations={"note": "hello"},
            deletion_grace_period_seconds=10,
        ),
        spec=v1.PodSpec(containers=[], termination_grace_period_seconds=0),
    )


def _container() -> v1.Container:
    pre_stop = v1.LifecycleHandler(
        exec=v1.ExecAction(command=["action1", "a>b"]),
        http_get=v1.HTTPGetAction(
            path="path",
            host="host",
            port=8080,
            scheme="scheme",
            http_headers=[v1.HTTPHeader(name="n", value="v")],
        ),
        tcp_socket=v1.TCPSocketAction(port="80"),
        sleep=v1.SleepAction(seconds=0),
    )
    return v1.Container(
        name="test_container",
        image="busybox",
        ports=[
            v1.ContainerPort(name="http", host_port=80, container_port=8080, protocol="TCP", host_ip="1.2.3.4"),
            v1.ContainerPort(container_port=90),
        ],
        termination_message_path="/somepath",
        termination_message_policy="File",
        lifecycle=v1.Lifecycle(pre_stop=pre_stop),
    )


def test_container_labels() -> None:
    written = labels.new_container_labels(_container(), _pod())
    assert labels.get_container_info_from_labels(written) == labels.LabeledContainerInfo(
        "test_container", "test_pod", "test_ns", types.UID("test_uid")
    )


def test_container_annotations() -> None:
    container, pod = _container(), _pod()
    opts = kubecontainer.RunContainerOptions(
        annotations=[
            kubecontainer.Annotation("Foo", "bar"),
            kubecontainer.Annotation("io.kubernetes.container.restartCount", "99"),
        ]
    )
    written = labels.new_container_annotations(container, pod, 5, opts)
    assert written["Foo"] == "bar"
    assert container.lifecycle is not None
    assert labels.get_container_info_from_annotations(written) == labels.AnnotatedContainerInfo(
        hash=kubecontainer.hash_container(container),
        restart_count=5,
        pod_deletion_grace_period=10,
        pod_termination_grace_period=0,
        termination_message_path="/somepath",
        termination_message_policy="File",
        pre_stop_handler=container.lifecycle.pre_stop,
        container_ports=container.ports,
    )


def test_annotations_are_written_as_go_writes_them() -> None:
    written = labels.new_container_annotations(_container(), _pod(), 0, kubecontainer.RunContainerOptions())
    assert written["io.kubernetes.container.preStopHandler"] == (
        '{"exec":{"command":["action1","a\\u003eb"]},'
        '"httpGet":{"path":"path","port":8080,"host":"host","scheme":"scheme",'
        '"httpHeaders":[{"name":"n","value":"v"}]},'
        '"tcpSocket":{"port":"80"},"sleep":{"seconds":0}}'
    )
    assert written["io.kubernetes.container.ports"] == (
        '[{"name":"http","hostPort":80,"containerPort":8080,"protocol":"TCP","hostIP":"1.2.3.4"},{"containerPort":90}]'
    )


def test_absent_annotations_leave_defaults() -> None:
    assert labels.get_container_info_from_annotations({}) == labels.AnnotatedContainerInfo()


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("io.kubernetes.container.hash", "no number"),
        ("io.kubernetes.container.hash", "1" * 17),
        ("io.kubernetes.container.restartCount", "x"),
        ("io.kubernetes.container.restartCount", "1_000"),
        ("io.kubernetes.container.restartCount", "3000000000"),
        ("io.kubernetes.pod.deletionGracePeriod", "9" * 5000),
        ("io.kubernetes.pod.terminationGracePeriod", ""),
        ("io.kubernetes.container.preStopHandler", "{"),
        ("io.kubernetes.container.ports", '{"a":1}'),
    ],
)
def test_unreadable_annotations_leave_defaults(label: str, text: str) -> None:
    assert labels.get_container_info_from_annotations({label: text}) == labels.AnnotatedContainerInfo()


def test_pod_labels() -> None:
    pod = _pod()
    assert labels.get_pod_sandbox_info_from_labels(labels.new_pod_labels(pod)) == (
        labels.LabeledPodSandboxInfo(pod.metadata.labels, "test_pod", "test_ns", types.UID("test_uid"))
    )
    assert pod.metadata.labels == {"foo": "bar"}


def test_pod_annotations() -> None:
    assert labels.new_pod_annotations(_pod()) == {"note": "hello"}


def test_log_symlink() -> None:
    link = legacy.log_symlink("/foo/bar", "pod_ns", "container", "80123")
    assert link == "/foo/bar/pod_ns_container-80123.log"


def test_long_log_symlink_fits_a_file_name() -> None:
    link = legacy.legacy_log_symlink("id" * 32, "n" * 100, "p" * 100, "ns")
    assert len(link.rsplit("/", 1)[1]) == 255
    assert link.endswith(".log")


@pytest.mark.parametrize(
    ("link", "container_id"),
    [("/logs/pod_ns_c-abcdef0123.log", "abcdef0123"), ("/logs/pod-x_ns_c-123456.log", "123456")],
)
def test_container_id_from_log_symlink(link: str, container_id: str) -> None:
    assert legacy.get_container_id_from_legacy_log_symlink(link) == container_id


@pytest.mark.parametrize("link", ["/logs/nolog", "/logs/a-12345.log", "/logs/a-123456"])
def test_no_container_id_in_log_symlink(link: str) -> None:
    with pytest.raises(ValueError, match=r"too short|doesn't end"):
        legacy.get_container_id_from_legacy_log_symlink(link)
