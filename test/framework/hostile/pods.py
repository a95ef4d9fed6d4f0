"""Create hostile pods that meet the "restricted" pod security standard, as the user of a namespace may create them.

They run busybox. The amount that they write is limited: a pod that exceeds its limit is evicted, and another one
follows.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from framework.apiserver.errors import ApiError
from framework.cluster_node import ClusterMember
from framework.pods import Manifest, pod, shell
from pkg import golang

# COUNT is the number of concurrent pods. _LIFE is the range of seconds for which a pod lives after its first container
# has started, before another pod replaces it.
COUNT = 10
_LIFE = (5.0, 25.0)
# A pod may take this many seconds to start. Thirty containers take a minute while nine other pods attack.
_PATIENCE = 90.0
_LOOK_PERIOD = 0.5
_RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_VOLUME = {"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}
_MOUNT = {"name": "v", "mountPath": "/v"}
_RESOURCES = {"limits": {"ephemeral-storage": "1Gi", "memory": "256Mi"}, "requests": {"cpu": "10m", "memory": "16Mi"}}
_ALWAYS = {"periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 1000}

Container = dict[str, Any]


def container(script: str, name: str = "main", **fields: object) -> Container:
    return shell(script, name, **{"securityContext": _RESTRICTED, "resources": _RESOURCES, **fields})


def hostile(name: str, *containers: Container, **spec: Any) -> Manifest:
    return pod(name, *containers, securityContext={"fsGroup": 10001}, **spec)


_TREES = r"""
cd /v
mkdir -p wide odd; cd odd
for name in '\377\376' 'a\nb' '\r' ' ' '-rf' '*' '\33[2J' '\\' '\1'; do
  odd=$(printf -- "${name}x"); mkdir -- "$odd"; : > "$odd/$odd"
done
ln -s / root; ln -s loop loop; ln -s ../.. up; mkfifo fifo; mkdir shut; : > shut/in; chmod 0 shut
cd ../wide; i=0; while [ $i -lt 3000 ]; do : > $i; i=$((i+1)); done
cd ..; n=0123456789abcdef; n=$n$n$n$n; i=0
while [ $i -lt 4000 ]; do mkdir -p $n/$n/$n/$n/$n/$n/$n/$n; cd $n/$n/$n/$n/$n/$n/$n/$n || break; i=$((i+8)); done
sleep 100000
"""


def trees(name: str) -> Manifest:
    """Return a pod that creates deep and wide trees of files, with names that are not text."""
    return hostile(name, container(_TREES, volumeMounts=[_MOUNT]), volumes=[_VOLUME])


def messages(name: str) -> Manifest:
    """Return a pod that repeatedly leaves termination messages that are large, not text, or read from the log."""
    scripts = {
        "huge": "head -c 100000000 /dev/zero | tr '\\0' x > /message; exit 1",
        "binary": "head -c 1000000 /dev/urandom > /message; exit 1",
        "link": "rm -f /message; ln -s /proc/self/mem /message; exit 1",
        "in-volume": "rm -f /v/message; mkfifo /v/message; exit 1",
        "shut": "echo x > /message; chmod 0 /message; exit 1",
        "log": "head -c 3000000 /dev/zero | tr '\\0' y; exit 1",
        "lines": "yes '' | head -n 300000; exit 1",
    }
    containers = [
        container(
            script,
            kind,
            terminationMessagePath="/v/message" if kind == "in-volume" else "/message",
            terminationMessagePolicy="FallbackToLogsOnError",
            volumeMounts=[_MOUNT],
        )
        for kind, script in scripts.items()
    ]
    return hostile(name, *containers, volumes=[_VOLUME])


def logs(name: str) -> Manifest:
    """Return a pod that logs at full speed: lines, one endless line, bytes that are not text, and empty lines."""
    scripts = {
        "lines": "yes 'a line of a log that says nothing'",
        "line": "tr '\\0' x < /dev/zero",
        "binary": "cat /dev/urandom",
        "empty": "yes ''",
    }
    return hostile(name, *(container(script, kind) for kind, script in scripts.items()))


# The key is a port, and the value the script that serves each connection.
_SERVERS = {
    8001: r"""printf 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n'; yes""",
    8002: r"""printf 'HTTP/1.1 200 OK\r\n'; yes "$(printf 'X-Header: value\r')" """,
    8003: r"""while printf H; do sleep 1; done""",
    8004: r"""printf 'HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n'""",
    8005: r"""yes "$(printf 'HTTP/1.1 103 Early\r\n\r')" """,
    8006: r"""sleep 1000""",
    8007: r"""printf 'HTTP/1.1 200 OK\r\n\r\n'; cat /dev/urandom""",
    8008: r"""cat /dev/urandom""",
    8009: r"""printf '\0\0\0\4\0\0\0\0\0'; tr '\0' '\1' < /dev/zero""",
    8010: r"""printf '\0\0\0\4\0\0\0\0\0'; while printf '\0\0\10\6\0\0\0\0\0abcdefgh'; do :; done""",
    8011: r"""printf 'HTTP/1.1 99999999999 \377\r\nContent-Length: -5\r\n\r\n'; tr '\0' x < /dev/zero""",
}


def _server() -> Container:
    lines = [
        f"cat > /v/{port} <<'END'\n{script}\nEND\nnc -ll -p {port} -e sh /v/{port} 2>/dev/null &"
        for port, script in _SERVERS.items()
    ]
    return container("\n".join([*lines, "wait"]), "server", volumeMounts=[_MOUNT])


def _get(port: int) -> dict[str, Any]:
    return {"httpGet": {"port": port, "path": "/"}}


def probes(name: str) -> Manifest:
    """Return a pod whose probes run every second, against servers with invalid responses."""
    ports = list(_SERVERS)
    containers = [
        container(
            "sleep 100000",
            f"c{number}",
            startupProbe={**_ALWAYS, "tcpSocket": {"port": port}},
            livenessProbe={**_ALWAYS, **(_get(port) if number % 4 else {"grpc": {"port": port}})},
            readinessProbe={**_ALWAYS, **_get(ports[number - 1])},
        )
        for number, port in enumerate(ports)
    ]
    return hostile(name, _server(), *containers, volumes=[_VOLUME])


def commands(name: str) -> Manifest:
    """Return a pod with probes whose commands write endlessly, write nearly the permitted amount, or never end."""
    scripts = {
        "endless": "yes",
        "large": "head -c 15000000 /dev/zero",
        "errors": "head -c 15000000 /dev/urandom >&2; exit 1",
        "slow": "sleep 1000",
        "orphan": "sleep 1000 & exit 0",
    }
    containers = [
        container(
            "sleep 100000",
            kind,
            livenessProbe={**_ALWAYS, "exec": {"command": ["sh", "-c", script]}},
            readinessProbe={**_ALWAYS, "exec": {"command": ["sh", "-c", script]}},
        )
        for kind, script in scripts.items()
    ]
    return hostile(name, *containers)


def hooks(name: str) -> Manifest:
    ports = list(_SERVERS)
    commands = (["yes"], ["sh", "-c", "head -c 15000000 /dev/urandom; exit 1"], ["sleep", "1000"])
    handlers = [_get(port) for port in ports] + [{"exec": {"command": command}} for command in commands]
    containers = [
        container(
            "sleep 100000",
            f"c{number}",
            lifecycle={"postStart": handler if number % 3 == 0 else {"sleep": {"seconds": 1}}, "preStop": handler},
        )
        for number, handler in enumerate(handlers)
    ]
    return hostile(name, _server(), *containers, volumes=[_VOLUME])


def paths(name: str) -> Manifest:
    """Return a pod with odd sub-paths, one of which is at times a link out of the volume."""
    names = ("a\rb", "a\nb", "\u202e", "x" * 255, "/".join(["d"] * 500), "a b'\"$(c)", "link")
    moves = "mv -T own link; mv -T link own; mv -T out link; mv -T link out"
    swap = f"cd /v; mkdir -p own; ln -s /etc out; while true; do {moves}; done"
    containers = [
        container(
            "sleep 1; exit 1",
            f"c{number}",
            volumeMounts=[{"name": "v", "mountPath": "/part", "subPath": sub_path}],
        )
        for number, sub_path in enumerate(names)
    ]
    return hostile(name, container(swap, "swap", volumeMounts=[_MOUNT]), *containers, volumes=[_VOLUME])


def environments(name: str) -> Manifest:
    """Return a pod with variables that expand beyond the limit of a process, and with many other variables."""
    doubling = [{"name": "A0", "value": "x" * 100}]
    doubling += [{"name": f"A{n}", "value": f"$(A{n - 1})$(A{n - 1})"} for n in range(1, 40)]
    many = [{"name": f"B{n}", "value": "y" * 200} for n in range(2000)]
    arguments = ["$(A9)" * 500]
    containers = [
        container("sleep 1; exit 1", "doubling", env=doubling),
        container("sleep 1; exit 1", "many", env=many),
        container("sleep 1; exit 1", "arguments", env=doubling[:10], args=arguments),
    ]
    return hostile(name, *containers)


def large(name: str) -> Manifest:
    """Return a pod as large as the API server accepts, with a volume that shows it to the containers."""
    annotations = {"fieldRef": {"fieldPath": "metadata.annotations"}}
    volume = {"name": "v", "downwardAPI": {"items": [{"path": f"d{n}/{'p' * 100}", **annotations} for n in range(20)]}}
    containers = [container("exit 1", f"c{number}", volumeMounts=[_MOUNT]) for number in range(30)]
    found = hostile(name, *containers, volumes=[volume])
    found["metadata"]["annotations"] = {f"a{n}": "\x1b\u202e" * 20_000 for n in range(3)}
    return found


def crashes(name: str) -> Manifest:
    return hostile(name, *(container("exit $RANDOM", f"c{number}") for number in range(15)))


def flips(name: str) -> Manifest:
    """Return a pod that is ready in one second and not ready in the next."""
    probe = {"exec": {"command": ["sh", "-c", "exit $(($(date +%s) % 2))"]}, "periodSeconds": 1, "failureThreshold": 1}
    return hostile(name, *(container("sleep 100000", f"c{number}", readinessProbe=probe) for number in range(8)))


def processes(name: str) -> Manifest:
    """Return a pod with many processes, sockets and odd process names, which repeatedly uses up its memory."""
    many = r"""
    cd /v; odd=$(printf '\377(\n) R x'); cp /bin/busybox "$odd"; i=0
    while [ $i -lt 150 ]; do nc -ll -p $((9000+i)) -e cat 2>/dev/null & i=$((i+1)); done
    i=0; while [ $i -lt 100 ]; do ( exec -a sleep "./$odd" 1000 ) & i=$((i+1)); done
    wait
    """
    hungry = {**_RESOURCES, "limits": {"memory": "16Mi", "ephemeral-storage": "1Gi"}}
    return hostile(
        name,
        container(many, "many", volumeMounts=[_MOUNT]),
        container("head -c 1G /dev/zero | tail", "hungry", resources=hungry),
        volumes=[_VOLUME],
    )


KINDS: Mapping[str, Callable[[str], Manifest]] = {
    kind.__name__: kind
    for kind in (
        trees, messages, logs, probes, commands, hooks, paths, environments, large, crashes, flips, processes,
    )
}  # fmt: skip


@dataclass
class _Present:
    """Describe a pod that exists. Times are in seconds."""

    life: float = field(default_factory=lambda: random.uniform(*_LIFE))
    patience: float = _PATIENCE

    def ages(self, has_begun: bool) -> bool:
        """Subtract one period from the pod's time, and report whether the time has just run out."""
        if not has_begun and self.patience > 0:
            self.patience -= _LOOK_PERIOD
            return False
        before = self.life
        self.life -= _LOOK_PERIOD
        return before > 0 >= self.life


class HostilePods:
    """Keep `count` hostile pods on a node within a `with` block, of all kinds in turn, and replace them."""

    def __init__(self, node: ClusterMember, count: int = COUNT) -> None:
        self._node = node
        self._count = count
        self._kinds = itertools.cycle(KINDS.items())
        self._numbers = itertools.count()
        self._ending = threading.Event()
        self._present: dict[str, _Present] = {}  # The key is the pod's name.
        self.made: Counter[str] = Counter()
        self.ran: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._thread = golang.go(self._run, name="hostile-pods")
        return self

    def __exit__(self, *_: object) -> None:
        """Delete the existing pods."""
        self._ending.set()
        self._thread.join()
        for name in self._present:
            self._delete(name)

    def _run(self) -> None:
        while not self._ending.wait(_LOOK_PERIOD):
            for name in list(self._present):
                self._age(name)
            while len(self._present) < self._count:
                self._create()

    def _create(self) -> None:
        kind, make = next(self._kinds)
        name = f"{kind}-{next(self._numbers)}"
        self._node.create(make(name))
        self.made[kind] += 1
        self._present[name] = _Present()

    def _age(self, name: str) -> None:
        """Count the pod's time once it has started. Delete the pod at the end, and forget it when it is gone."""
        latest = self._node.history.latest(name)
        if latest is None:
            del self._present[name]
            return
        has_begun = any(each.get("containerID") for each in latest.statuses.values())
        if self._present[name].ages(has_begun):
            self.ran[name.partition("-")[0]] += has_begun
            self._delete(name)

    def _delete(self, name: str) -> None:
        with contextlib.suppress(ApiError):  # The pod may have ended by itself.
            self._node.delete(name, random.choice((None, 1, 5)))
