"""Serve the logs of containers and of the node.

Go: pkg/kubelet/kubelet_pods.go
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubelet import container as kubecontainer
from kubelet import images
from kubelet.kubelet_getters import KubeletGetters
from pkg import features, golang
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery.util import errors as utilerrors

if TYPE_CHECKING:
    from kubelet.apis import config as kubeletconfig
    from pkg.golang import http


@dataclass(kw_only=True, eq=False, repr=False)
class KubeletLogs(KubeletGetters):
    """Serve logs. Any thread may call these methods."""

    kubelet_configuration: kubeletconfig.KubeletConfiguration

    def get_kubelet_container_logs(
        self,
        ctx: golang.Context,
        pod_full_name: str,
        container_name: str,
        log_options: v1.PodLogOptions,
        stdout: kubecontainer.BinaryWriter | None,
        stderr: kubecontainer.BinaryWriter | None,
    ) -> None:
        """Copy a container's log to the streams; a stream that the client did not request is None.

        Raise LookupError if there is no such log, ValueError for an invalid name or log format, OSError if a log cannot
        be read, golang.ContextError, the runtime's error, or the error of a stream.
        """
        name, namespace = kubecontainer.parse_pod_full_name(pod_full_name)
        found = self.get_pod_by_name(namespace, name)
        if found is None:
            raise LookupError(f'pod "{name}" cannot be found - no logs available')
        both = self.pod_manager.get_pod_and_mirror_pod(found)
        pod = both.pod
        if pod is None:
            raise LookupError(f'mirror pod "{name}" does not have a corresponding pod')
        uid = found.metadata.uid if both.was_mirror else pod.metadata.uid
        pod_status = self.status_manager.get_pod_status(uid)
        if pod_status is None:
            # After a restart of the kubelet only the API server's status is available.
            pod_status = pod.status
        container_id = validate_container_log_status(
            pod.metadata.name, pod_status, container_name, log_options.previous
        )
        if stdout is not None:
            # The empty write sends the response's headers, so the client learns of the success even if the container is
            # silent for long.
            stdout.write(b"")
        self.container_runtime.get_container_logs(ctx, pod, container_id, log_options, stdout, stderr)

    def serve_logs(self, w: http.ResponseWriter, r: http.Request) -> None:
        """Serve a request for /logs or a path below it: the node's log directory, or a query of its logs.

        Raise http.HTTPError on failure.
        """
        # These imports are lazy because only requests for the node's logs need them.
        from kubelet import kubelet_server_journal as journal
        from pkg.golang import http
        from pkg.golang.http.fs import FileServer

        if not r.path.startswith("/logs/"):
            # Without the slash, the relative links of a listing would lead to other paths.
            raise http.HTTPError(404, "404 page not found")
        path = r.path.removeprefix("/logs/")
        query = None
        if features.feature_gate.enabled(features.NODE_LOG_QUERY) and (
            self.kubelet_configuration.enable_system_log_query
        ):
            try:
                query = journal.new_node_log_query(r.query)
            except utilerrors.Aggregate as err:
                raise http.HTTPError(400, str(err)) from err
        if query is not None:
            if path:
                raise http.HTTPError(406, "path not allowed in query mode")
            if faults := utilerrors.new_aggregate(query.validate()):
                raise http.HTTPError(406, str(faults))
            if query.services:
                # Do not call let_client_pause here: journalctl would have to wait for as long as the client reads
                # nothing.
                journal.serve_journal(w, r, query)
                return
            # Clients on Windows may separate path elements with backslashes.
            path = query.files[0].replace("\\", "/")
        w.let_client_pause()
        FileServer(journal.NODE_LOG_DIR).serve(w, r, path)


def validate_container_log_status(
    pod_name: str, pod_status: v1.PodStatus, container_name: str, previous: bool
) -> kubecontainer.ContainerID:
    """Return the container whose log to serve: the running one, or the last one that terminated.

    Raise LookupError, with the reason, if there is none.
    """
    found = (
        podutil.get_container_status(pod_status.container_statuses, container_name)
        or podutil.get_container_status(pod_status.init_container_statuses, container_name)
        or podutil.get_container_status(pod_status.ephemeral_container_statuses, container_name)
    )
    where = f'"{container_name}" in pod "{pod_name}"'
    if found is None:
        raise LookupError(f"container {where} is not available")
    state, last = found.state, found.last_state.terminated
    last_id = last.container_id if last is not None else ""
    if previous:
        if not last_id:
            raise LookupError(f"previous terminated container {where} not found")
        return kubecontainer.parse_container_id(last_id)
    if state.running is not None:
        return kubecontainer.parse_container_id(found.container_id)
    if state.terminated is not None or last is not None:
        # A container that could not start has terminated without an ID; serve the log of the container that ran before
        # it.
        ended = state.terminated.container_id if state.terminated is not None else ""
        if not ended and not last_id:
            raise LookupError(f"container {where} is terminated")
        return kubecontainer.parse_container_id(ended or last_id)
    raise LookupError(f"container {where} is waiting to start{_why_waiting(state.waiting)}")


def _why_waiting(waiting: v1.ContainerStateWaiting | None) -> str:
    if waiting is None:
        return " - no logs yet"
    match waiting.reason:
        case images.ErrImagePull.reason:
            return ": image can't be pulled"
        case images.ErrImagePullBackOff.reason:
            return ": trying and failing to pull image"
        case reason:
            return f": {reason}"
