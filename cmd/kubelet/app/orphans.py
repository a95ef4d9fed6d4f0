"""`kubelet orphans`: directories of pods that are gone, why they are still there, and their removal.

It asks those whom the kubelet itself asks for its pods, and the container runtime, so it says the same whether a
kubelet is running or not. Nor does it call a pod an orphan that is in the kubelet's allocated_pods_state: somebody may
call the command with other flags than the kubelet's, and then it asks other sources of pods.

DIVERGES (preference: kubelet orphans): a command lists the directories of pods that are gone, and removes them.
Go: cmd/kubelet/app/server.go, NewKubeletCommand: has no such command.
Why: somebody has to remove by hand what the kubelet leaves, and must not remove the data of a mounted volume.
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

# Seconds for which an answer of the runtime or of the API server is waited for.
_TIMEOUT = 10.0


class UnknownPodsError(Exception):
    """Somebody who may have pods could not be asked, so that no directory is surely an orphan's."""


@dataclass(slots=True)
class Result:
    """What was found of one orphan, and what became of it."""

    orphan: orphans.Orphan
    removed: bool = False
    # Why it was not removed although it was to be.
    refused: str = ""


@dataclass(slots=True)
class _Faults:
    """Takes what a source of pods has to complain of. A recorder that records nothing else."""

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
    """Has a manifest folder read as on a node without API server."""

    def replace(self, objects: Any) -> None:
        """What is no pod does not matter here."""


def find(server: options.KubeletServer) -> list[orphans.Orphan]:
    """The orphans below the root directory. Raises UnknownPodsError and OSError."""
    pods_dir = os.path.join(server.kubelet_flags.root_directory, kubeletconfig.DEFAULT_KUBELET_PODS_DIR_NAME)
    # Before the pods: one that is new to the node must not have its directory seen and itself not.
    with os.scandir(pods_dir) as entries:
        found = sorted(types.UID(entry.name) for entry in entries if entry.is_dir(follow_symlinks=False))
    known = known_pods(server)
    return [orphans.inspect(pods_dir, uid) for uid in found if uid not in known]


def known_pods(server: options.KubeletServer) -> set[str]:
    """UIDs of the pods that somebody wants or that are running. Raises UnknownPodsError."""
    return {*_pods_of_kubelet(server), *_pods_of_runtime(server), *_pods_of_sources(server)}


def remove(found: list[orphans.Orphan], mounter: mount_utils.Interface) -> list[Result]:
    """Remove those that nothing is mounted below; one that stays does not keep others from going."""
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
    """The orphans as text for a terminal, or as JSON. Pods have chosen the names of files."""
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
    """The pods in allocated_pods_state, whatever source they are from.

    The kubelet writes a pod into that file before it makes the pod's directory, and takes the pod out some time after
    the pod has gone. There is no such file when the gate InPlacePodVerticalScaling is off.
    """
    root = server.kubelet_flags.root_directory
    with _unknown(f"the pods in {os.path.join(root, allocation.ALLOCATED_PODS_STATE_FILE)}"):
        resources, _ = state.restore_state(CheckpointManager(root), allocation.ALLOCATED_PODS_STATE_FILE)
    yield from resources


def _pods_of_runtime(server: options.KubeletServer) -> set[str]:
    """Those that have a sandbox, running or not."""
    from kubelet.cri import remote

    endpoint = server.kubelet_configuration.container_runtime_endpoint
    ctx, cancel = golang.with_timeout(golang.background(), _TIMEOUT)
    try:
        service = remote.RemoteRuntimeService(ctx, endpoint, _TIMEOUT)
        sandboxes = service.list_pod_sandbox(ctx, None)
    except Exception as err:  # gRPC's errors and ours: whatever it is, nobody knows what runs
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
        raise UnknownPodsError(f"cannot tell the pods of {path}: {faults.messages[0]}")
    return _sent(updates)


def _is_there(path: str) -> bool:
    """Raises OSError for a path that cannot be looked at, where os.path.exists says that nothing is there."""
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
    """The kubeconfig, but with the certificate that a kubelet has renewed: its own may have expired since."""
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
    except Exception as err:  # whatever it is, there may be pods that nobody told of
        raise UnknownPodsError(f"cannot tell {what}: {err}") from err


def _sent(updates: golang.Channel[kubetypes.PodUpdate]) -> list[v1.Pod]:
    update, _, ready = updates.try_recv()
    return list(update.pods) if ready and update is not None else []


def _uids(pods: list[v1.Pod]) -> Iterator[str]:
    return (pod.metadata.uid for pod in pods)
