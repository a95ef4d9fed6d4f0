"""Run `kubelet orphans`: list the directories of pods that no longer exist, explain them, and remove them.

The command asks the sources from which the kubelet itself gets its pods, and the container runtime, so its result does
not depend on whether a kubelet is running. A pod in the kubelet's allocated_pods_state is no orphan either: the command
may run with other flags than the kubelet, and then it asks other sources of pods.

DIVERGES (preference: kubelet orphans): the command lists the directories of pods that no longer exist, and removes
them.
Go: cmd/kubelet/app/server.go, NewKubeletCommand: the Go kubelet has no such command.
Why: an administrator has to remove by hand what the kubelet leaves, and must not remove the data of a mounted volume.
Test: test/programs/orphans_test.py:test_directories_of_nobody_are_listed_and_explained,
test/programs/orphans_test.py:test_asked_to_it_removes_them
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from kubelet import allocation, kubeletconfig, orphans
from kubelet import types as kubetypes
from kubelet.allocation import state
from kubelet.checkpointmanager import CheckpointManager
from kubelet.config import http
from kubelet.config.file import SourceFile
from pkg import golang, mount_utils
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.component_helpers.node import util as nodeutil
from pkg.golang import net

from . import explain, options

if TYPE_CHECKING:
    from kubelet.config import objects
    from pkg.client_go import rest

# The command waits this time, in seconds, for the runtime or the API server.
_TIMEOUT = 10.0


class UnknownPodsError(Exception):
    """Signal that a source of pods could not be read, so that no directory is certain to be an orphan."""


@dataclass(slots=True)
class Result:
    """Record what was found about one orphan, and whether it was removed."""

    orphan: orphans.Orphan
    removed: bool = False
    # If a requested removal was not done, this field contains the reason.
    refused: str = ""


@dataclass(slots=True)
class _Faults:
    """Collect the errors that a source of pods reports, and record nothing else."""

    messages: list[str] = field(default_factory=list)

    def event(self, obj: Any, event_type: str, reason: str, message: str, /) -> None:
        self.messages.append(message)

    def eventf(self, obj: Any, event_type: str, reason: str, message_fmt: str, /, *args: Any) -> None:
        self.messages.append(message_fmt % args)

    def annotated_eventf(
        self, obj: Any, annotations: Any, event_type: str, reason: str, message_fmt: str, /, *args: Any
    ) -> None:
        self.messages.append(message_fmt % args)


class _NoObjects:
    """Make the file source read a manifest directory as on a node without an API server."""

    def replace(self, objects: Any) -> None:
        """Ignore the objects, because only pods matter here."""


def find(server: options.KubeletServer) -> list[orphans.Orphan]:
    """Return the orphans below the root directory. Raise UnknownPodsError and OSError."""
    pods_dir = os.path.join(server.kubelet_flags.root_directory, kubeletconfig.DEFAULT_KUBELET_PODS_DIR_NAME)
    # The directories are read before the pods are listed. In the other order, a pod that starts in between would have a
    # directory but would be missing from the list.
    with os.scandir(pods_dir) as entries:
        found = sorted(types.UID(entry.name) for entry in entries if entry.is_dir(follow_symlinks=False))
    known = known_pods(server)
    return [orphans.inspect(pods_dir, uid) for uid in found if uid not in known]


def known_pods(server: options.KubeletServer) -> set[str]:
    """Return the UIDs of the pods that are in a source or have a sandbox. Raise UnknownPodsError."""
    return {*_pods_of_kubelet(server), *_pods_of_runtime(server), *_pods_of_sources(server)}


def remove(found: list[orphans.Orphan], mounter: mount_utils.Interface) -> list[Result]:
    """Remove the orphans below which nothing is mounted.

    An orphan that cannot be removed does not prevent the removal of others.
    """
    results: list[Result] = []
    for orphan in found:
        result = Result(orphan)
        try:
            orphans.remove(mounter, orphan)
            result.removed = True
        except OSError as err:
            result.refused = str(err)
        results.append(result)
    return results


def render(results: list[Result], output: str) -> str:
    """Return the orphans as text for a terminal, or as JSON.

    Pods chose the names of the files, so control characters are made printable.
    """
    if output == explain.JSON:
        documents = [
            {**asdict(each.orphan), "kind": str(each.orphan.kind), "removed": each.removed, "refused": each.refused}
            for each in results
        ]
        return json.dumps(documents, indent=2) + "\n"
    if not results:
        return "No orphaned pod directories.\n"
    return "".join(golang.printable(line) + "\n" for result in results for line in _lines(result))


def _lines(result: Result) -> Iterator[str]:
    outcome = ": removed" if result.removed else f": NOT REMOVED, {result.refused}" if result.refused else ""
    yield f"{result.orphan.path} ({result.orphan.kind}){outcome}"
    for reason in result.orphan.reasons:
        yield f"  {reason}"


def _pods_of_kubelet(server: options.KubeletServer) -> Iterator[str]:
    """Yield the UIDs of the pods in allocated_pods_state, whatever their source.

    The kubelet writes a pod into that file before it creates the pod's directory, and removes the pod from it some time
    after the pod has terminated. The file does not exist when the gate InPlacePodVerticalScaling is off.
    """
    root = server.kubelet_flags.root_directory
    with _unknown(f"the pods in {os.path.join(root, allocation.ALLOCATED_PODS_STATE_FILE)}"):
        resources, _ = state.restore_state(CheckpointManager(root), allocation.ALLOCATED_PODS_STATE_FILE)
    yield from resources


def _pods_of_runtime(server: options.KubeletServer) -> set[str]:
    """Return the UIDs of the pods that have a sandbox, running or not."""
    from kubelet.cri import remote

    endpoint = server.kubelet_configuration.container_runtime_endpoint
    ctx, cancel = golang.with_timeout(golang.background(), _TIMEOUT)
    try:
        service = remote.RemoteRuntimeService(ctx, endpoint, _TIMEOUT)
        sandboxes = service.list_pod_sandbox(ctx, None)
    except Exception as err:  # With any error of gRPC or of this client, the running pods are unknown.
        raise UnknownPodsError(f"cannot ask the container runtime at {endpoint} for its pods: {err}") from err
    finally:
        cancel()
    return {sandbox.metadata.uid for sandbox in sandboxes}


def _pods_of_sources(server: options.KubeletServer) -> Iterator[str]:
    node_name = nodeutil.get_hostname(server.kubelet_flags.hostname_override)
    kc = server.kubelet_configuration
    if kc.static_pod_path:
        yield from _uids(_pods_of_path(kc.static_pod_path, node_name, standalone=not server.kubelet_flags.kube_config))
    if kc.static_pod_url:
        yield from _uids(_pods_of_url(kc.static_pod_url, kc.static_pod_url_header, node_name))
    if server.kubelet_flags.kube_config:
        yield from _uids(_pods_of_api_server(server, node_name))


def _pods_of_path(path: str, node_name: str, standalone: bool) -> list[v1.Pod]:
    updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel(1)
    faults = _Faults()
    store: objects.ObjectStore | None = _NoObjects() if standalone else None
    source = SourceFile(path, node_name, 0, updates, faults, store)
    with _unknown(f"the pods of {path}"):
        if _is_there(path):
            source.list_config(golang.background())
    if faults.messages:
        raise UnknownPodsError(f"cannot determine the pods of {path}: {faults.messages[0]}")
    return _sent(updates)


def _is_there(path: str) -> bool:
    """Report whether the path exists.

    Raise OSError if that cannot be determined. os.path.exists would return False in that case.
    """
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True


def _pods_of_url(url: str, header: dict[str, list[str]], node_name: str) -> list[v1.Pod]:
    updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel(1)
    source = http.SourceURL(url, header, node_name, updates, _Faults())
    with _unknown(f"the pods of {net.redacted(url)}"):
        source.extract_from_url(golang.background())
    return _sent(updates)


def _pods_of_api_server(server: options.KubeletServer, node_name: str) -> list[v1.Pod]:
    from pkg.apimachinery.apis.meta import v1 as metav1
    from pkg.client_go import kubernetes

    selector = metav1.ListOptions(field_selector=f"spec.nodeName={node_name}")
    with _unknown("the pods that the API server has for this node"):
        client = kubernetes.new_for_config(_client_config(server))
        try:
            found = client.core_v1.pods("").list(golang.background(), selector)
        finally:
            client.close()
    if found.undecodable:
        raise UnknownPodsError(f"cannot decode the pod {found.undecodable[0].key} of the API server")
    return found.items


def _client_config(server: options.KubeletServer) -> rest.Config:
    """Return the kubeconfig's configuration, with the client certificate that the kubelet has renewed, if there is one.

    The certificate of the kubeconfig itself may have expired.
    """
    from pkg.client_go import rest
    from pkg.client_go.tools import clientcmd

    config = clientcmd.build_config_from_flags("", server.kubelet_flags.kube_config)
    renewed = os.path.join(server.kubelet_flags.cert_directory, "kubelet-client-current.pem")
    if server.kubelet_configuration.rotate_certificates and os.path.exists(renewed):
        config = rest.anonymous_client_config(config)
        config.tls_client_config.cert_file = config.tls_client_config.key_file = renewed
    config.timeout = _TIMEOUT
    return config


@contextlib.contextmanager
def _unknown(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as err:  # After any error there may be pods that this source did not report.
        raise UnknownPodsError(f"cannot determine {what}: {err}") from err


def _sent(updates: golang.Channel[kubetypes.PodUpdate]) -> list[v1.Pod]:
    update, _, ready = updates.try_recv()
    return list(update.pods) if ready and update is not None else []


def _uids(pods: list[v1.Pod]) -> Iterator[str]:
    return (pod.metadata.uid for pod in pods)
