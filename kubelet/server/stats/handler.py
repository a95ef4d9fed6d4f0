"""Define the source of statistics, and serve their summary.

Go: pkg/kubelet/server/stats/handler.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.server.stats.summary import StatsError, SummaryProvider
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.golang import singleflight

if TYPE_CHECKING:
    from kubelet import cm
    from kubelet.cadvisor.info import v1 as cadvisorapi
    from kubelet.cadvisor.info import v2 as cadvisorapiv2
    from pkg import volume
    from pkg.golang import http


class Provider(Protocol):
    """Define the source of statistics about the node and its pods. Any thread may call it.

    Methods that ask the runtime or the kernel raise crierror.RemoteError, OSError, ValueError or LookupError.
    """

    def list_pod_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        """Return the statistics of all pods with their running containers."""
        ...

    def list_pod_cpu_and_memory_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        """Return the same as list_pod_stats, without the statistics that take long to collect."""
        ...

    def list_pod_stats_and_update_cpu_nano_core_usage(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        """Return the same as list_pod_stats. The containers' current CPU usage is computed since the last such call."""
        ...

    def list_pod_disk_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        """Return only what the layers, logs and volumes of pods use."""
        ...

    def image_fs_stats(self, ctx: golang.Context) -> tuple[statsapi.FsStats, statsapi.FsStats]:
        """Return the file systems of the images and of the containers' writable layers."""
        ...

    def get_cgroup_stats(
        self, cgroup_name: str, update_stats: bool
    ) -> tuple[statsapi.ContainerStats, statsapi.NetworkStats | None]:
        """Return the statistics of a cgroup and of its network. Raise LookupError if there is no such cgroup."""
        ...

    def get_cgroup_cpu_and_memory_stats(self, cgroup_name: str, update_stats: bool) -> statsapi.ContainerStats:
        """Return the CPU and memory statistics of a cgroup. Raise LookupError if there is no such cgroup."""
        ...

    def root_fs_stats(self) -> statsapi.FsStats:
        """Return the file system of the kubelet's root directory."""
        ...

    def get_requested_containers_info(
        self, container_name: str, options: cadvisorapiv2.RequestOptions
    ) -> dict[str, cadvisorapi.ContainerInfo]:
        """Return a cgroup, with its descendants if the options ask for them."""
        ...

    def get_pod_by_name(self, namespace: str, name: str) -> v1.Pod | None: ...

    def get_node(self, ctx: golang.Context) -> v1.Node:
        """Return the node. Raise apierrors.StatusError if the API server does not have it."""
        ...

    def get_node_config(self) -> cm.NodeConfig: ...

    def list_volumes_for_pod(self, pod_uid: types.UID) -> dict[str, volume.Volume]:
        """Return the mounted volumes by their names in the pod's spec."""
        ...

    def list_block_volumes_for_pod(self, pod_uid: types.UID) -> dict[str, volume.BlockVolume]:
        """Return the block volumes by their names in the pod's spec."""
        ...

    def get_pods(self) -> list[v1.Pod]: ...

    def rlimit_stats(self) -> statsapi.RlimitStats: ...

    def get_pod_cgroup_root(self) -> str:
        """Return the parent cgroup of all pods, in the form of the cgroup driver."""
        ...

    def get_pod_by_cgroupfs(self, cgroupfs: str) -> v1.Pod | None:
        """Return the pod that has this cgroup."""
        ...


def create_handlers(root_path: str, summary_provider: SummaryProvider) -> dict[str, http.Handler]:
    """Return the handlers below root_path, by path, for GET and POST.

    DIVERGES (safer): all requests for /stats/summary that arrive while a summary is being made share the next one.
    Go: pkg/kubelet/server/stats/handler.go, (*handler).handleSummary: the Go kubelet makes a summary for each request.
    Why: a client with hundreds of connections would block the eviction manager, which needs the same statistics.
    Test: summary_test.py:test_who_asks_while_a_summary_is_made_shares_the_next_one
    """
    # The client that asked first may leave while others wait for the same summary, so no request's context applies.
    ctx = golang.background()
    small = singleflight.Rounds(lambda: _encode(summary_provider.get_cpu_and_memory_stats(ctx)))
    # Clients may ask as often as they like, so they get recently measured statistics.
    whole = singleflight.Rounds(lambda: _encode(summary_provider.get(ctx, update_stats=False)))

    def handle_summary(w: http.ResponseWriter, r: http.Request) -> None:
        only_cpu_and_memory = r.query.get("only_cpu_and_memory") == ["true"]
        try:
            page = (small if only_cpu_and_memory else whole).get(r.ctx)
        except StatsError as err:
            _handle_error(w, r, err)
            return
        w.headers.set("Content-Type", "application/json")
        w.write(page)

    return {f"{root_path}/summary": handle_summary}


def _encode(summary: statsapi.Summary) -> bytes:
    # The page is indented because people read it, too.
    return msgspec.json.format(statsapi.encode_json(summary), indent=1)


def _handle_error(w: http.ResponseWriter, r: http.Request, err: StatsError) -> None:
    klog.error_s(err, "HTTP InternalServerError serving", request=r.path)
    w.headers.set("Content-Type", "text/plain; charset=utf-8")
    w.write_header(500)
    w.write(golang.encode_valid_utf8(f"Internal Error: {err}"))
