"""Read container logs with the options of the API.

Go: pkg/kubelet/kuberuntime/kuberuntime_logs.go
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from kubelet import container as kubecontainer
from kubelet.kuberuntime import logs
from pkg import golang
from pkg.api.core import v1

if TYPE_CHECKING:
    from kubelet.cri import apis as internalapi
    from pkg.apimachinery import clock as clockpkg

# No container is older than this many seconds, and a much larger value would overflow a datetime.
_ALL_TIME = timedelta(days=365 * 100).total_seconds()


@dataclass(kw_only=True, eq=False, repr=False)
class LogMethods:
    """Read the log files of containers."""

    runtime_service: internalapi.RuntimeService
    # `read_rotated_logs` tells whether readers of a container's log also get the rotated files.
    read_rotated_logs: bool
    clock: clockpkg.Clock

    def read_logs(
        self,
        ctx: golang.Context,
        path: str,
        container_id: str,
        api_opts: v1.PodLogOptions,
        stdout: kubecontainer.BinaryWriter | None,
        stderr: kubecontainer.BinaryWriter | None,
    ) -> None:
        """Copy a log as logs.read_logs does, and raise its errors. Without `follow`, container_id may be ""."""
        since = None
        if api_opts.since_seconds is not None and api_opts.since_seconds < _ALL_TIME:
            # time of day: the lines of a log carry it.
            since = self.clock.now() - timedelta(seconds=api_opts.since_seconds)
        if api_opts.since_time is not None and (since is None or api_opts.since_time > since):
            since = api_opts.since_time
        opts = logs.LogOptions(
            tail_lines=api_opts.tail_lines,
            limit_bytes=api_opts.limit_bytes,
            since=since,
            follow=api_opts.follow,
            timestamp=api_opts.timestamps,
            rotated=self.read_rotated_logs,
        )
        logs.read_logs(ctx, path, container_id, opts, self.runtime_service, stdout, stderr)
