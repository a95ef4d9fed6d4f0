"""Test `kubectl logs` with all options and all kinds of containers, over restarts and rotation, and bad requests."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from framework import kubectl as kubectls
from framework.cluster_client import TIMEOUT, Namespace, is_running, restarts
from framework.containerd import BUSYBOX
from framework.local_cluster import Environment, LocalCluster
from framework.pod_ways import StaticPods
from framework.waiting import wait_for

pytestmark = pytest.mark.kubectl

# The script writes a line every one and a half seconds, so that timestamps tell the lines apart.
STORY = "echo one; sleep 1.5; echo two >&2; sleep 1.5; echo three; sleep 1000 & wait"
LIVES = 'echo "life of $(cat /v/lives)"; [ -s /v/lives ] && { sleep 1000 & wait; }; echo again > /v/lives; exit 3'
# The ticks begin only when a follower has connected.
TICKS = (
    "echo begun; until [ -e /tmp/go ]; do sleep 0.1; done;"
    " i=0; while [ $i -lt 10 ]; do i=$((i+1)); echo tick $i; sleep 0.2; done"
)
# The script writes 4000 lines of 3000 bytes within 15 s, which is much more than the size at which a log is rotated.
FLOOD = (
    "x=$(printf '%03000d' 0); i=0; while [ $i -lt 4000 ]; do i=$((i+1)); echo line $i $x;"
    " [ $((i % 200)) -ne 0 ] || sleep 0.75; done; sleep 1000 & wait"
)
LINES = 4000
TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z) (.*)")


def pod(name: str, *commands: str, **spec: Any) -> dict[str, Any]:
    """Return a pod with the containers c0, c1 and so on, each of which runs a shell command."""
    containers = [
        {"name": f"c{i}", "image": BUSYBOX, "command": ["sh", "-c", f"trap exit TERM; {command}"]}
        for i, command in enumerate(commands)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": containers, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, **spec},
    }


@pytest.fixture(scope="module")
def kubectl(environment: Environment, namespace: Namespace) -> kubectls.Kubectl:
    return kubectls.Kubectl(kubectls.newest(), environment.kubeconfig, namespace.name)


@pytest.fixture(scope="module")
def pods(namespace: Namespace) -> None:
    """Create all pods that the tests use at once."""
    init = {"name": "init", "image": BUSYBOX, "command": ["sh", "-c", "echo from init"]}
    volume = {"volumes": [{"name": "v", "emptyDir": {}}]}
    namespace.create(pod("story", STORY, "echo of the other; sleep 1000 & wait", initContainers=[init]))
    lives = pod("lives", f"touch /v/lives; {LIVES}", restartPolicy="Always", **volume)
    lives["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    namespace.create(lives)
    broken = pod("broken", "true")
    broken["spec"]["containers"][0].update(image="registry.invalid/none:1", imagePullPolicy="IfNotPresent")
    namespace.create(broken)
    namespace.wait_for_running("story")


@pytest.fixture(scope="module")
def logs(kubectl: kubectls.Kubectl, pods: None) -> Callable[..., str]:
    """Return a function that runs `kubectl logs`. It raises AssertionError with kubectl's output if kubectl fails."""

    def logs(*arguments: str) -> str:
        done = kubectl.run("logs", *arguments)
        assert done.returncode == 0, f"{done.stdout.decode()}{done.stderr.decode()}"
        return done.stdout.decode()

    wait_for("all lines of the story", lambda: "three\n" in logs("story", "-c", "c0"), TIMEOUT)
    return logs


Logs = Callable[..., str]


def test_container_and_its_streams(logs: Logs) -> None:
    assert logs("story", "-c", "c0") == "one\ntwo\nthree\n"
    assert logs("story", "-c", "c1") == "of the other\n"
    # kubectl shows the first container, and says so on stderr.
    assert logs("story") == "one\ntwo\nthree\n"
    assert logs("story", "-c", "init") == "from init\n"


def test_all_containers_with_their_names(logs: Logs) -> None:
    text = logs("story", "--all-containers", "--prefix")
    assert sorted(text.splitlines()) == [
        "[pod/story/c0] one",
        "[pod/story/c0] three",
        "[pod/story/c0] two",
        "[pod/story/c1] of the other",
        "[pod/story/init] from init",
    ]


def test_selector(logs: Logs) -> None:
    assert sorted(
        logs("-l", "app=story", "--all-containers", "--tail=-1", "--max-log-requests=9").split("\n")
    ) == sorted(["from init", "of the other", "one", "three", "two", ""])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--tail=2"], "two\nthree\n"),
        (["--tail=0"], ""),
        (["--tail=9223372036854775807"], "one\ntwo\nthree\n"),
        (["--limit-bytes=6"], "one\ntw"),
        (["--limit-bytes=9223372036854775807"], "one\ntwo\nthree\n"),
        (["--since=1h"], "one\ntwo\nthree\n"),
        (["--since-time=2001-01-01T00:00:00Z"], "one\ntwo\nthree\n"),
        (["--since-time=9999-12-31T00:00:00Z"], ""),
        (["--ignore-errors"], "one\ntwo\nthree\n"),
        (["--pod-running-timeout=5s"], "one\ntwo\nthree\n"),
        (["--insecure-skip-tls-verify-backend"], "one\ntwo\nthree\n"),
    ],
)
def test_part_of_a_log(logs: Logs, arguments: list[str], expected: str) -> None:
    assert logs("story", "-c", "c0", *arguments) == expected


def test_timestamps_and_since_one_of_them(logs: Logs) -> None:
    found = [TIMESTAMP.fullmatch(line) for line in logs("story", "-c", "c0", "--timestamps").splitlines()]
    assert all(found)
    (first, one), (second, two), (third, three) = [match.groups() for match in found if match]
    assert (one, two, three) == ("one", "two", "three")
    assert first < second < third
    assert logs("story", "-c", "c0", f"--since-time={second}") == "two\nthree\n"
    between = datetime.fromisoformat(third[:26] + "+00:00") - timedelta(seconds=0.5)
    assert logs("story", "-c", "c0", f"--since-time={between.astimezone(UTC).isoformat()}") == "three\n"


def test_container_that_was_restarted(logs: Logs, namespace: Namespace) -> None:
    namespace.wait_for("lives", "a restart", lambda found: restarts(found, "c0") == 1 and is_running(found))
    wait_for("the log of the container", lambda: logs("lives") == "life of again\n", TIMEOUT)
    assert logs("lives", "--previous") == "life of \n"


def test_ephemeral_container(logs: Logs, kubectl: kubectls.Kubectl, namespace: Namespace) -> None:
    image = namespace.images.actual(BUSYBOX)
    done = kubectl.run("debug", "story", f"--image={image}", "--container=debug", "--", "sh", "-c", "echo from debug")
    assert done.returncode == 0, done.stderr.decode()
    namespace.wait_for("story", "its ephemeral container has ended", debug_ended)
    assert logs("story", "-c", "debug") == "from debug\n"


def debug_ended(found: Any) -> bool:
    return any(each.state.terminated is not None for each in found.status.ephemeral_container_statuses or [])


Follow = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def follow(kubectl: kubectls.Kubectl) -> Iterator[Follow]:
    started: list[subprocess.Popen[bytes]] = []

    def follow(*arguments: str) -> subprocess.Popen[bytes]:
        started.append(kubectl.start("logs", "-f", *arguments))
        return started[-1]

    yield follow
    for each in started:
        each.kill()
        each.communicate()


def followed_ticks(follow: Follow, kubectl: kubectls.Kubectl, name: str) -> str:
    """Return what a follower that started before the first tick receives until it ends by itself."""
    process = follow(name)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    assert kubectl.run("exec", name, "--", "touch", "/tmp/go").returncode == 0
    rest, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    return rest.decode()


def test_followed_to_the_end_of_the_container(follow: Follow, kubectl: kubectls.Kubectl, namespace: Namespace) -> None:
    namespace.create(pod("ticks", TICKS))
    namespace.wait_for_running("ticks")
    assert followed_ticks(follow, kubectl, "ticks") == "".join(f"tick {i}\n" for i in range(1, 11))


def test_follower_of_a_restarted_container_has_all_of_the_first(
    follow: Follow, kubectl: kubectls.Kubectl, namespace: Namespace
) -> None:
    namespace.create(pod("again", f"{TICKS}; exit 1", restartPolicy="Always"))
    namespace.wait_for_running("again")
    assert followed_ticks(follow, kubectl, "again") == "".join(f"tick {i}\n" for i in range(1, 11))


@pytest.mark.local
def test_no_line_is_lost_by_rotation(logs: Logs, namespace: Namespace, local: LocalCluster, follow: Follow) -> None:
    """A follower loses no line when the log is rotated. A later reader sees only the newest file."""
    namespace.create(pod("flood", FLOOD))
    namespace.wait_for_running("flood")
    process = follow("flood")
    assert process.stdout is not None
    followed = [process.stdout.readline() for _ in range(LINES)]

    expected = [f"line {i} {'0' * 3000}\n" for i in range(1, LINES + 1)]
    assert [line.decode() for line in followed] == expected
    (directory,) = Path(local.folder, "pod-logs").glob(f"{namespace.name}_flood_*/c0")
    assert len(list(directory.glob("0.log.*.gz"))) >= 1
    newest = (directory / "0.log").read_text().count("\n")
    assert logs("flood") == "".join(expected[LINES - newest :])
    assert logs("flood", "--tail=3000") == "".join(expected[LINES - min(newest, 3000) :])


@pytest.mark.local
def test_followers_that_go_away_leave_nothing(logs: Logs, local: LocalCluster, follow: Follow) -> None:
    def held() -> tuple[int, int]:
        process = Path(f"/proc/{local.kubelet.pid}")
        links = []
        for link in (process / "fd").iterdir():
            # A descriptor that was closed after the listing does not count.
            with suppress(FileNotFoundError):
                links.append(str(link.readlink()))
        return len(links), sum("inotify" in link for link in links)

    def start_following() -> subprocess.Popen[bytes]:
        process = follow("story", "-c", "c1")
        assert process.stdout is not None
        assert process.stdout.readline() == b"of the other\n"
        return process

    logs("story", "-c", "c1")
    descriptors, _ = held()
    processes = [start_following()]
    _, instances = held()
    processes += [start_following() for _ in range(4)]
    assert held()[1] == instances, "the followers do not share one inotify instance"

    for process in processes:
        process.kill()

    # Each follower held a connection and a file. Some other connection may have been opened meanwhile.
    wait_for(
        "the kubelet has released everything",
        lambda: held()[1] == instances - 1 and held()[0] < descriptors + 5,
        TIMEOUT,
        held,
    )


@pytest.mark.local
def test_mirror_pod_shows_the_log_of_its_static_pod(logs: Logs, namespace: Namespace, local: LocalCluster) -> None:
    with closing(StaticPods(namespace, local)) as static:
        static.create(pod("static", "echo of a static pod; sleep 1000 & wait"))
        static.wait_for_running("static")
        name = static.full_name("static")
        wait_for("the log of the container", lambda: logs(name) == "of a static pod\n", TIMEOUT)


# --- Logs that do not exist -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["story", "-c", "none"], "container none is not valid for pod story"),
        (["none"], 'pods "none" not found'),
        (["story", "-c", "c0", "--previous"], 'previous terminated container "c0" in pod "story" not found'),
        (["broken"], 'container "c0" in pod "broken" is waiting to start: '),
    ],
)
def test_no_log(kubectl: kubectls.Kubectl, logs: Logs, arguments: list[str], error: str) -> None:
    done = kubectl.run("logs", *arguments)
    assert done.returncode == 1
    assert error in done.stderr.decode()


@pytest.mark.parametrize(
    "query",
    [
        "tailLines=-1",
        "tailLines=x",
        "tailLines=9223372036854775808",
        "limitBytes=0",
        "sinceSeconds=0",
        "sinceTime=yesterday",
        "sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z",
    ],
)
def test_bad_request(kubectl: kubectls.Kubectl, logs: Logs, query: str) -> None:
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/story/log?container=c0&{query}"
    done = kubectl.run("get", "--raw", path)
    assert done.returncode == 1
    assert b"one" not in done.stdout


# --- The node's own logs ----------------------------------------------------------------------------


def raw(kubectl: kubectls.Kubectl, node: str, path: str) -> subprocess.CompletedProcess[bytes]:
    return kubectl.run("get", "--raw", f"/api/v1/nodes/{node}/proxy/logs/{path}")


def test_log_directory_of_the_node(kubectl: kubectls.Kubectl, namespace: Namespace) -> None:
    listing = raw(kubectl, namespace.node, "")
    assert b'<a href="containers/">containers/</a>' in listing.stdout, listing.stderr


@pytest.mark.parametrize("path", ["../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "none.log", "..%2f..%2fetc/passwd"])
def test_nothing_else_of_the_node(kubectl: kubectls.Kubectl, namespace: Namespace, path: str) -> None:
    done = raw(kubectl, namespace.node, path)
    assert done.returncode == 1
    assert b"root:" not in done.stdout + done.stderr
