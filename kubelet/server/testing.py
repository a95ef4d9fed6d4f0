"""Provide a kubelet for tests of its server."""

from __future__ import annotations

import datetime
from typing import Any

from kubelet.server import stats
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.golang import http


class FakeHost:
    """Represent a kubelet with one pod, `pod` in `ns`, whose container is `c`."""

    resync_interval = 60.0

    def __init__(self) -> None:
        meta = metav1.ObjectMeta(name="pod", namespace="ns", uid=types.UID("u"))
        self.pod = v1.Pod(metadata=meta, spec=v1.PodSpec(containers=[v1.Container(name="c")]))
        self.entered: datetime.datetime | None = None
        self.err: Exception | None = None
        self.log: list[bytes] = [b"line\n"]
        self.asked: list[Any] = []

    def _answer(self, *asked: Any) -> None:
        self.asked.append(asked)
        if self.err is not None:
            raise self.err

    def get_pods(self) -> list[v1.Pod]:
        return [self.pod]

    def get_running_pods(self, ctx: golang.Context) -> list[v1.Pod]:
        self._answer()
        return [self.pod]

    def get_pod_by_name(self, namespace: str, name: str) -> v1.Pod | None:
        return self.pod if (namespace, name) == ("ns", "pod") else None

    def latest_loop_entry_time(self) -> datetime.datetime | None:
        return self.entered

    def run_in_container(
        self, ctx: golang.Context, pod_full_name: str, pod_uid: types.UID, container_name: str, cmd: Any
    ) -> bytes:
        self._answer(pod_full_name, pod_uid, container_name, cmd)
        return b"output"

    def checkpoint_container(
        self, ctx: golang.Context, pod_uid: types.UID, pod_full_name: str, container_name: str, options: Any
    ) -> None:
        self._answer(pod_uid, pod_full_name, container_name, options.timeout)
        options.location = "/checkpoints/x.tar"

    def get_kubelet_container_logs(
        self,
        ctx: golang.Context,
        pod_full_name: str,
        container_name: str,
        log_options: v1.PodLogOptions,
        stdout: Any,
        stderr: Any,
    ) -> None:
        for line in self.log:
            (stdout or stderr).write(line)
        self._answer(pod_full_name, container_name, log_options, stdout is not None, stderr is not None)

    def serve_logs(self, w: http.ResponseWriter, r: http.Request) -> None:
        w.write(f"log of {r.path}".encode())

    def get_exec(self, ctx: golang.Context, pod: str, uid: types.UID, container: str, cmd: Any, opts: Any) -> str:
        self._answer(pod, uid, container, cmd, opts)
        return "http://127.0.0.1:1/"

    def get_attach(self, ctx: golang.Context, pod: str, uid: types.UID, container: str, opts: Any) -> str:
        self._answer(pod, uid, container, opts)
        return "http://127.0.0.1:1/"

    def get_port_forward(self, ctx: golang.Context, name: str, namespace: str, uid: types.UID, opts: Any) -> str:
        self._answer(name, namespace, uid, opts.ports)
        return "http://127.0.0.1:1/"

    def get_requested_containers_info(self, container_name: str, options: Any) -> dict[str, Any]:
        return {}

    def get_version_info(self) -> Any:
        raise OSError("no version")

    def get_cached_machine_info(self) -> Any:
        raise OSError("no machine")

    def get_pod_by_cgroupfs(self, cgroupfs: str) -> v1.Pod | None:
        return None

    def list_pod_sandbox_metrics(self, ctx: golang.Context) -> list[Any]:
        return []

    def list_metric_descriptors(self, ctx: golang.Context) -> list[Any]:
        return []


class FakeSummaryProvider:
    """Represent a provider without statistics."""

    def get(self, ctx: golang.Context, update_stats: bool) -> Any:
        raise stats.StatsError("no figures")

    def get_cpu_and_memory_stats(self, ctx: golang.Context) -> Any:
        raise stats.StatsError("no figures")
