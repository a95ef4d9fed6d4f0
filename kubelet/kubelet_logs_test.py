"""Test the serving of logs.

Go: pkg/kubelet/kubelet_pods_test.go, pkg/kubelet/kubelet_server_journal_test.go
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kubelet import container as kubecontainer
from kubelet import kubelet_server_journal
from kubelet.apis import config as kubeletconfig
from kubelet.kubelet_logs import KubeletLogs, validate_container_log_status
from kubelet.pod import PodAndMirrorPod
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.golang.http import testing as httptesting

_CTX = golang.background()


def _terminated(container_id: str = "") -> v1.ContainerState:
    return v1.ContainerState(terminated=v1.ContainerStateTerminated(container_id=container_id))


def _waiting(reason: str) -> v1.ContainerState:
    return v1.ContainerState(waiting=v1.ContainerStateWaiting(reason=reason))


_RUNNING = v1.ContainerState(running=v1.ContainerStateRunning())


@pytest.mark.parametrize(
    ("state", "last", "now", "previous"),
    [
        (_RUNNING, v1.ContainerState(), "now", 'previous terminated container "c" in pod "p" not found'),
        (_RUNNING, _terminated("test://last"), "now", "last"),
        (_RUNNING, _terminated(), "now", 'previous terminated container "c" in pod "p" not found'),
        (
            _terminated("test://ended"),
            v1.ContainerState(),
            "ended",
            'previous terminated container "c" in pod "p" not found',
        ),
        (_terminated(), v1.ContainerState(), 'container "c" in pod "p" is terminated', None),
        (_terminated("test://ended"), _terminated("test://last"), "ended", "last"),
        (_terminated(), _terminated("test://last"), "last", "last"),
        (_waiting("CrashLoopBackOff"), _terminated("test://last"), "last", "last"),
        (_waiting("CrashLoopBackOff"), _terminated(), 'container "c" in pod "p" is terminated', None),
        (
            _waiting("ErrImagePull"),
            v1.ContainerState(),
            'container "c" in pod "p" is waiting to start: image can\'t be pulled',
            None,
        ),
        (
            _waiting("ImagePullBackOff"),
            v1.ContainerState(),
            'container "c" in pod "p" is waiting to start: trying and failing to pull image',
            None,
        ),
        (
            _waiting("ContainerCreating"),
            v1.ContainerState(),
            'container "c" in pod "p" is waiting to start: ContainerCreating',
            None,
        ),
        (v1.ContainerState(), v1.ContainerState(), 'container "c" in pod "p" is waiting to start - no logs yet', None),
    ],
)
@pytest.mark.parametrize("kind", ["container_statuses", "init_container_statuses", "ephemeral_container_statuses"])
def test_container_whose_log_is_meant(
    kind: str, state: v1.ContainerState, last: v1.ContainerState, now: str, previous: str | None
) -> None:
    status = v1.ContainerStatus(name="c", container_id="test://now", state=state, last_state=last)
    pod_status = v1.PodStatus(**{kind: [status]})  # type: ignore[arg-type]
    assert _ask(pod_status, False) == now
    if previous is not None:
        assert _ask(pod_status, True) == previous


def _ask(pod_status: v1.PodStatus, previous: bool) -> str:
    try:
        return validate_container_log_status("p", pod_status, "c", previous).id
    except LookupError as err:
        return str(err)


def test_container_that_is_not_there() -> None:
    assert _ask(v1.PodStatus(), False) == 'container "c" in pod "p" is not available'


class _Runtime:
    """Write the UID of the pod and the ID of the container instead of a log."""

    def get_container_logs(
        self, ctx: golang.Context, pod: v1.Pod, container_id: kubecontainer.ContainerID, *rest: Any
    ) -> None:
        rest[1].write(f"{pod.metadata.uid} {container_id.id}".encode())


class _Stream(list[bytes]):
    def write(self, data: bytes, /) -> int:
        self.append(data)
        return len(data)


def _pod(uid: str, container_id: str) -> v1.Pod:
    status = v1.ContainerStatus(name="c", container_id=container_id, state=_RUNNING)
    metadata = metav1.ObjectMeta(name="p", namespace="ns", uid=types.UID(uid))
    return v1.Pod(metadata=metadata, status=v1.PodStatus(container_statuses=[status]))


def _kubelet(found: v1.Pod | None, pair: PodAndMirrorPod | None, statuses: dict[str, v1.PodStatus]) -> KubeletLogs:
    kubelet: Any = KubeletLogs.__new__(KubeletLogs)
    kubelet.pod_manager = SimpleNamespace(
        get_pod_by_name=lambda namespace, name: found if (namespace, name) == ("ns", "p") else None,
        get_pod_and_mirror_pod=lambda pod: pair,
    )
    kubelet.status_manager = SimpleNamespace(get_pod_status=statuses.get)
    kubelet.container_runtime = _Runtime()
    return kubelet  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("static", "known", "expected"),
    [
        # The API server's status counts until the kubelet has its own.
        (False, False, b"pod api"),
        (False, True, b"pod known"),
        (True, True, b"pod known"),
    ],
)
def test_container_logs(static: bool, known: bool, expected: bytes) -> None:
    pod, mirror = _pod("pod", "test://api"), _pod("mirror", "test://api")
    pair = PodAndMirrorPod(pod, mirror if static else None, was_mirror=static)
    uid = "mirror" if static else "pod"
    kubelet = _kubelet(mirror if static else pod, pair, {uid: _pod("", "test://known").status} if known else {})
    stream = _Stream()
    kubelet.get_kubelet_container_logs(_CTX, "p_ns", "c", v1.PodLogOptions(), stream, None)
    # The client learns at once that there will be a log.
    assert stream == [b"", expected]


@pytest.mark.parametrize(
    ("found", "pair", "name", "message"),
    [
        (None, None, "p_ns", 'pod "p" cannot be found - no logs available'),
        (
            _pod("m", ""),
            PodAndMirrorPod(None, _pod("m", ""), was_mirror=True),
            "p_ns",
            'mirror pod "p" does not have a corresponding pod',
        ),
        (None, None, "p", 'failed to parse the pod full name "p"'),
    ],
)
def test_no_container_logs(found: v1.Pod | None, pair: PodAndMirrorPod | None, name: str, message: str) -> None:
    kubelet = _kubelet(found, pair, {})
    with pytest.raises((LookupError, ValueError), match=message):
        kubelet.get_kubelet_container_logs(_CTX, name, "c", v1.PodLogOptions(), None, None)


# ---- The node's logs ----


@pytest.fixture
def log_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods" / "0.log").write_text("of a pod\n")
    (tmp_path / "foo.log").write_text("of foo\n")
    monkeypatch.setattr(kubelet_server_journal, "NODE_LOG_DIR", str(tmp_path))
    # This PATH has no journalctl.
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def _get(target: str, query_enabled: bool = True) -> httptesting.Recorded:
    kubelet: Any = KubeletLogs.__new__(KubeletLogs)
    kubelet.kubelet_configuration = kubeletconfig.KubeletConfiguration(enable_system_log_query=query_enabled)
    return httptesting.record(kubelet.serve_logs, "GET", target)


@pytest.mark.parametrize(
    ("target", "status", "text"),
    [
        ("/logs", 404, "404 page not found\n"),
        ("/logs/foo.log", 200, "of foo\n"),
        ("/logs/pods/0.log", 200, "of a pod\n"),
        ("/logs/pods", 301, ""),
        ("/logs/../../etc/passwd", 404, "404 page not found\n"),
        ("/logs/%2e%2e/%2e%2e/etc/passwd", 404, "404 page not found\n"),
        ("/logs/?query=foo", 200, "of foo\n"),
        ("/logs/?query=/foo.log", 200, "of foo\n"),
        ("/logs/?query=%5Cpods%5C0.log", 200, "of a pod\n"),
        ("/logs/?query=/pods", 301, ""),
        ("/logs/?query=bar", 200, "\nlog not found for bar\n"),
        (
            "/logs/?query=foo&boot=0",
            200,
            "\noptions present and query resolved to log files for [foo]\ntry without specifying options\n",
        ),
        ("/logs/pods/?query=foo", 406, "path not allowed in query mode\n"),
        ("/logs/?query=/..", 406, 'query: Invalid value: ["/.."]: permission denied\n'),
        ("/logs/?query=/missing", 406, 'query: Invalid value: ["/missing"]: no such file or directory\n'),
        ("/logs/?query=", 400, 'query: Invalid value: [""]: query cannot be empty\n'),
        ("/logs/?query=a&query=/b", 406, 'query: Invalid value: "[/b], [a]": cannot specify a file and service\n'),
        (
            "/logs/?boot=1",
            406,
            "[query: Required value: cannot be empty with options, boot: Invalid value: 1: must be less than 1]\n",
        ),
        ("/logs/?boot=x&query=a", 400, 'boot: Invalid value: "x": strconv.Atoi: parsing "x": invalid syntax\n'),
    ],
)
def test_serve_logs(log_dir: Path, target: str, status: int, text: str) -> None:
    got = _get(target)
    assert (got.status, got.text) == (status, text)


@pytest.mark.parametrize(
    ("target", "may_pause"), [("/logs/foo.log", True), ("/logs/?query=/foo.log", True), ("/logs/?query=foo", False)]
)
def test_a_client_may_pause_that_keeps_no_program_waiting(log_dir: Path, target: str, may_pause: bool) -> None:
    got = _get(target)
    assert (got.text, got.may_pause) == ("of foo\n", may_pause)


def test_without_queries_they_are_no_concern_of_the_file_server(log_dir: Path) -> None:
    assert _get("/logs/foo.log?query=", query_enabled=False).text == "of foo\n"
