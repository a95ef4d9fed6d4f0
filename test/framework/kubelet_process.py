"""Run the kubelet as a process: start, stop and kill it as an operator does, and send it HTTP requests."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from framework.containerd import ROOT
from framework.cri import POD_NAME, CRIClient
from framework.pods import Manifest, Pod, summaries
from framework.ports import free_port
from framework.waiting import wait_for

T = TypeVar("T")

# These are the times, in seconds, for the kubelet to start, for it to exit, for an HTTP response, and for any other
# condition. They are far longer than needed, because the machine may be busy.
START_TIMEOUT = 120.0
EXIT_TIMEOUT = 60.0
ANSWER_TIMEOUT = 30.0
TIMEOUT = 180.0
LOG_LINES_IN_ERRORS = 40


class KubeletProcess:
    """Run a kubelet with its own root directory, manifests and ports.

    The names of its static pods end in the node's name.
    """

    program = "cmd.kubelet"

    def __init__(
        self,
        folder: Path,
        node: str,
        endpoint: str,
        config: Mapping[str, object] | None = None,
        flags: Mapping[str, object] | None = None,
        root_dir: Path | None = None,
    ) -> None:
        self.node = node
        self.root_dir = root_dir or folder / node
        self.manifests = folder / f"{node}-manifests"
        self.manifests.mkdir(parents=True, exist_ok=True)
        self.log = folder / f"{node}.log"
        self.read_only_port = free_port()
        self.healthz_port = free_port()
        self.port = free_port()
        self._config: dict[str, object] = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "staticPodPath": str(self.manifests),
            "containerRuntimeEndpoint": endpoint,
            # Few tests send the kubelet requests, and the creation of a serving certificate takes a while.
            "enableServer": False,
            "port": self.port,
            "readOnlyPort": self.read_only_port,
            "healthzPort": self.healthz_port,
            "cgroupDriver": "cgroupfs",
            # The kubelet refuses cgroup v1 by default, but the machine that runs the tests may have it.
            "failCgroupV1": False,
            # The kubelet must not change the packet filter of this machine.
            "makeIPTablesUtilChains": False,
            # A disk that is nearly full must not make the tests fail.
            "evictionHard": {"memory.available": "100Mi"},
            "imageGCHighThresholdPercent": 100,
            **(config or {}),
        }
        self._config_file = folder / f"{node}.yaml"
        self._flags = {
            "config": self._config_file,
            "root-dir": self.root_dir,
            "device-plugin-directory": f"{self.root_dir}/device-plugins",
            "cert-dir": folder / f"{node}-pki",
            "hostname-override": node,
            "v": 4,
            **(flags or {}),
        }
        self.environment: dict[str, str] = {}
        # This command runs the kubelet's command in another environment, for example in other namespaces.
        self.within: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the kubelet and wait until it answers requests."""
        self.spawn()
        self.wait_until_it_answers()

    def wait_until_it_answers(self) -> None:
        self._wait("the kubelet answers on its read-only port", self._answers, START_TIMEOUT)

    def spawn(self) -> None:
        """Start the kubelet without waiting for it."""
        self._config_file.write_text(json.dumps(self._config))
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self.within, sys.executable, "-m", self.program, *self.arguments],
                cwd=ROOT,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def arguments(self) -> list[str]:
        """Return the kubelet's command-line arguments."""
        return [f"--{name}={value}" for name, value in self._flags.items()]

    @property
    def pid(self) -> int:
        assert self._process is not None, "the kubelet was never started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait_for_exit(self, timeout: float) -> int:
        """Wait until the process ends, and return its exit status. Raise AssertionError after `timeout` seconds."""
        assert self._process is not None, "the kubelet was never started"
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the kubelet still runs after {timeout:g} s\n{self.end_of_log()}") from None

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def stop(self, timeout: float = EXIT_TIMEOUT) -> int:
        """Stop the kubelet with SIGTERM and return its exit status."""
        self.signal(signal.SIGTERM)
        return self.wait_for_exit(timeout)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait_for_exit(EXIT_TIMEOUT)

    def configure(self, config: Mapping[str, object]) -> None:
        """Add configuration that takes effect at the kubelet's next start."""
        self._config = {**self._config, **config}

    @contextmanager
    def configured(self, config: Mapping[str, object]) -> Iterator[None]:
        """Run the kubelet with additional configuration in a `with` block.

        The kubelet restarts at the start and at the end of the block. Its pods continue to run.
        """
        before = self._config
        self._restart_with({**before, **config})
        try:
            yield
        finally:
            self._restart_with(before)

    def _restart_with(self, config: dict[str, object]) -> None:
        self.stop()
        self._config = config
        self.start()

    def clean(self, cri: CRIClient) -> None:
        """Kill the process if it runs, and remove what its pods have left in the runtime and in the logs."""
        if self.alive:
            self.kill()
        for sandbox in cri.sandboxes():
            if sandbox.labels.get(POD_NAME, "").endswith(f"-{self.node}"):
                cri.remove_sandbox(sandbox.id)
        for link in Path("/var/log/containers").glob(f"*-{self.node}_*"):
            link.unlink()
        for folder in self.pod_logs():
            shutil.rmtree(folder)

    def write(self, manifest: Manifest) -> None:
        """Write a manifest in one step, so that the kubelet never reads half of it."""
        name = f"{manifest['metadata']['name']}.json"
        unfinished = self.manifests / f".{name}"
        unfinished.write_text(json.dumps(manifest))
        unfinished.rename(self.manifests / name)

    def remove(self, name: str) -> None:
        (self.manifests / f"{name}.json").unlink()

    def pod_logs(self, name: str = "*") -> list[Path]:
        """Return the log directories of a pod, or of all pods of this kubelet."""
        folder = Path(str(self._config.get("podLogsDir", "/var/log/pods")))
        return list(folder.glob(f"*_{name}-{self.node}_*"))

    def pod_directories(self) -> set[str]:
        """Return the UIDs of the pods that have a directory."""
        folder = self.root_dir / "pods"
        return {path.name for path in folder.iterdir()} if folder.exists() else set()

    def end_of_log(self) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-LOG_LINES_IN_ERRORS:])

    def get(self, path: str, port: int | None = None) -> str:
        """Return the body of an HTTP response from the read-only port or from another one."""
        url = f"http://127.0.0.1:{port or self.read_only_port}{path}"
        with urllib.request.urlopen(url, timeout=ANSWER_TIMEOUT) as answer:
            return str(answer.read().decode())

    def debug(self, path: str) -> Any:
        """Return the JSON that the kubelet serves on its debug socket for root, decoded, or None for 404."""
        connection = http.client.HTTPConnection("localhost", timeout=ANSWER_TIMEOUT)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(ANSWER_TIMEOUT)
        with contextlib.closing(connection):
            connection.sock.connect(str(self.root_dir / "debug.sock"))
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        assert answer.status in (200, 404), f"{path}: {answer.status} {body!r}"
        return json.loads(body) if answer.status == 200 else None

    def explained(self, name: str) -> dict[str, Any] | None:
        """Return the kubelet's explanation of the state of a manifest's pod, or None if it does not know the pod."""
        found = self.debug(f"/debug/syncloop/explain?pod=default/{self.full_name(name)}")
        return None if found is None else found["pods"][-1]["explanation"]

    def explain_command(self, *what: str) -> subprocess.CompletedProcess[str]:
        """Run `kubelet explain WHAT` for this kubelet."""
        command = [sys.executable, "-m", "cmd.kubelet", "explain", *what, f"--root-dir={self.root_dir}"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    def pods(self) -> dict[str, Pod]:
        """Return all pods by the name in their manifest, which is the pod's name without that of the node."""
        items = json.loads(self.get("/pods")).get("items") or []
        return {each.name.removesuffix(f"-{self.node}"): each for each in map(Pod, items)}

    def metric(self, name: str) -> float:
        """Return the value of a metric that has no labels."""
        (value,) = (line.split()[1] for line in self.get("/metrics").splitlines() if line.startswith(f"{name} "))
        return float(value)

    def logged(self, *texts: str) -> list[str]:
        """Return the lines of the kubelet's log that contain all these texts."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return [line for line in lines if all(text in line for text in texts)]

    def full_name(self, name: str) -> str:
        """Return the name that the pod of a manifest has in the API and in the runtime."""
        return f"{name}-{self.node}"

    def wait_for(self, what: str, condition: Callable[[dict[str, Pod]], T], timeout: float = TIMEOUT) -> T:
        """Wait until `condition`, called with all pods, returns a true value, and return that value."""
        return self._wait(what, lambda: condition(self.pods()), timeout)

    def wait_for_pod(self, name: str, condition: Callable[[Pod], object], timeout: float = TIMEOUT) -> Pod:
        """Wait until the pod of a manifest exists and meets the condition."""

        def look(pods: dict[str, Pod]) -> Pod | None:
            return pods[name] if name in pods and condition(pods[name]) else None

        found = self.wait_for(f"pod {name} meets the condition", look, timeout)
        assert found is not None
        return found

    def wait_for_running(self, *names: str, timeout: float = TIMEOUT) -> list[Pod]:
        """Wait until all these pods run and are ready."""

        def look(pods: dict[str, Pod]) -> list[Pod]:
            found = [pods[name] for name in names if name in pods and pods[name].running]
            return found if len(found) == len(names) else []

        return self.wait_for(f"{', '.join(names)} running", look, timeout)

    def wait_for_condition(self, what: str, look: Callable[[], T], timeout: float = TIMEOUT) -> T:
        """Wait until `look` returns a true value, and return it. Fail as soon as the process has ended."""
        return self._wait(what, look, timeout)

    def wait_for_log(self, *texts: str, count: int = 1, timeout: float = TIMEOUT) -> list[str]:
        """Wait until `count` lines of the log contain all these texts, and return them."""

        def look() -> list[str]:
            found = self.logged(*texts)
            return found if len(found) >= count else []

        return self.wait_for_condition(f"{count} lines with {texts} in the log", look, timeout)

    def _wait(self, what: str, look: Callable[[], T], timeout: float) -> T:
        def alive_and_look() -> T:
            assert self.alive, f"the kubelet has ended\n{self.end_of_log()}"
            return look()

        return wait_for(what, alive_and_look, timeout, self._describe)

    def _answers(self) -> bool:
        try:
            self.get("/pods")
        except OSError:
            return False
        return True

    def _describe(self) -> str:
        try:
            pods = summaries(list(self.pods().values()))
        except OSError as err:
            pods = f"no answer: {err}"
        return f"{pods}\n--- end of {self.log.name}\n{self.end_of_log()}"
