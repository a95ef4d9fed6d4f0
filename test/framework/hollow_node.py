"""Run a hollow node in this process: the real kubelet, joined to a test API server, on a fake runtime.

    with Cluster(directory) as cluster, HollowNode(cluster, "node-1"):
        ...                       # any client of Kubernetes, with cluster.admin_kubeconfig

The node's pods start, become ready, terminate and are deleted as on a real node, but no container runs.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from kubelet_cmd.kubelet.app import options, server
from kubelet_cmd.kubemark.app import hollow_node

from kubelet import cadvisor, cm, kubelet_build, kubelet_dependencies, lifecycle, prober
from kubelet import container as kubecontainer
from kubelet import kubelet as kubelet_module
from kubelet.apis.config import scheme, v1beta1
from kubelet.cri.remote import fake
from kubelet.cri.remote.fake import behaviour
from kubelet.cri.remote.fake.streaming import StreamingServer
from kubelet.server import InstallPages
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import clock
from pkg.apimachinery.api import resource
from pkg.apiserver.server import flagz
from pkg.client_go import kubernetes
from pkg.client_go.util import flowcontrol
from pkg.component_base.cli import flag as cliflag

from .apiserver import APIServer
from .apiserver.cluster import Cluster
from .apiserver.controllers import base
from .apiserver.errors import ApiError
from .apiserver.interfaces import Object
from .hollow_files import COMMANDS, HollowFiles
from .hollow_images import HollowImages, UnusedFaultError
from .hollow_pod import START_TIMEOUT, HollowPod, Node
from .hollow_probes import Readiness, SteeredManager
from .ports import free_port
from .watching import wait_for_object

# The capacity is the same on all machines, so that what fits on a node does not depend on where the tests run.
CAPACITY = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"}
# The node is in the test's process, so it needs no name service and no network.
ADDRESS = "127.0.0.1"
_START_TIMEOUT = 60.0
# A quick node multiplies times by this factor. It is also the node's shortest time, in seconds.
_QUICK = 0.1
_STOP_TIMEOUT = 30.0


class HollowNode:
    """Run a node within a `with` block, in which it is ready. A process and a cluster may have several nodes.

    - `api`: the cluster to join. None means a node without a cluster, whose only pods are those in `staticPodPath`.
    - `labels`, `taints`: the node registers with these, in the form of the API: [{"key": …, "effect": "NoSchedule"}].
    - `capacity`: the differences from CAPACITY, including extended resources: {"cpu": "2", "example.com/gpu": "1"}.
    - `config`: fields of the kubelet's configuration file: {"nodeStatusUpdateFrequency": "1s"}.
    - `quick`: restarts, retries and relists come after a tenth of the time, and backoffs grow to at most one second.

    `pod` returns a pod for the test to drive, and `images` makes pulls fail. `runtime` is the fake runtime of the
    kubelet: it records its calls, and can make them fail, hang or take time.
    """

    def __init__(
        self,
        api: Cluster | APIServer | None,
        name: str = "node-1",
        *,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Object] = (),
        capacity: Mapping[str, str] | None = None,
        config: Mapping[str, object] | None = None,
        quick: bool = False,
    ) -> None:
        self.name = name
        self.runtime = fake.FakeRuntime()
        self.runtime.write_logs, self.runtime.write_notices = True, False
        self.images = HollowImages(self.runtime)
        self._quick = quick
        self._readiness = Readiness()
        self._streams = StreamingServer(self.runtime)
        self._files = HollowFiles()
        for command in COMMANDS:
            self.runtime.plays.add(self._files.play, command=[command])
        self._api = api
        self._labels = dict(labels or {})
        self._taints = list(taints)
        self._capacity = _quantities({**CAPACITY, **(capacity or {})})
        self._config = dict(config or {})
        self._threads = golang.ThreadGroup()
        self._ctx, self._cancel = golang.with_cancel(golang.background())
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self.kubelet: kubelet_module.Kubelet | None = None
        # These functions add the kubelet's own debug pages to a server.
        self.debug_pages: list[InstallPages] = []

    def start(self) -> None:
        """Start the kubelet and return when the API server reports the node as ready.

        Raise ValueError if the configuration is invalid, and TimeoutError if the node does not become ready.
        """
        self._directory = tempfile.TemporaryDirectory(prefix=f"hollow-{self.name}.", ignore_cleanup_errors=True)
        try:
            with self._threads:
                self._streams.start()
                self._start_kubelet(Path(self._directory.name))
            if self._api is not None:
                self._wait_until_ready(self._api)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the kubelet like a crash of the node: it reports nothing to the API server. It cannot start again.

        Raise TimeoutError if threads of the kubelet do not end, and UnusedFaultError if a fault of `images` had no
        effect.
        """
        self._cancel()
        self._streams.stop()
        self.runtime.close()
        alive = self._threads.join(_STOP_TIMEOUT)
        if self._directory is not None:
            self._directory.cleanup()
        if alive:
            raise TimeoutError(f"node {self.name}: threads still run: {sorted(each.name for each in alive)}")
        self.images.end_all()

    def pod(self, name: str, namespace: str = "default") -> HollowPod:
        """Return a pod for the test to drive. The pod must be on this node within START_TIMEOUT seconds.

        Raise LookupError if the pod does not exist or is on another node, and TimeoutError if no node gets it.
        """
        if self._api is None:
            raise LookupError(f"node {self.name} has no API server through which a test could drive pods")
        store = self._api.store
        try:
            store.get("pods", name, namespace)
        except ApiError as err:
            names = ", ".join(each["metadata"]["name"] for each in store.list("pods", namespace))
            raise LookupError(f"pod {namespace}/{name} not found; the namespace has {names or 'no pods'}") from err
        node = Node(store, self.runtime, self._files, self._readiness)
        return wait_for_object(
            store,
            "pods",
            name,
            lambda pod: HollowPod(node, pod) if self._has(pod) else None,
            namespace=namespace,
            timeout=START_TIMEOUT,
            what=f"it is on node {self.name}",
        )

    def _has(self, pod: Object) -> bool:
        """Report whether the pod is on this node. Raise LookupError if it is on another node."""
        node = pod["spec"].get("nodeName")
        if node and node != self.name:
            raise LookupError(f"pod {pod['metadata']['name']} is on node {node}, not on {self.name}")
        return bool(node)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except UnusedFaultError:
            if error is None:
                raise

    def _start_kubelet(self, directory: Path) -> None:
        settings = options.KubeletServer(self._flags(directory), self._configuration(directory))
        options.validate_kubelet_server(settings)
        connect = server.connect_to_api_server(self._ctx, settings)
        dependencies = hollow_node.new_hollow_dependencies(
            fake.InProcessRuntimeService(self.runtime), fake.InProcessImageService(self.runtime)
        )
        dependencies.cadvisor_interface = _Machine(self._capacity)
        dependencies.container_manager = _ContainerManager(self._capacity)
        connect(dependencies)
        if self._quick:
            dependencies.clock = _QuickClock()
        dependencies.flagz = flagz.FlagSetReader(cliflag.FlagSet())  # The node has no command line.
        golang.after_func(self._ctx, lambda: _close_clients(dependencies))
        new_builder = functools.partial(_QuickBuilder if self._quick else _HollowBuilder, self._readiness)
        self.kubelet = server.create_and_init_kubelet(self._ctx, settings, dependencies, new_builder)
        self._readiness.follow_by(self.kubelet)
        self.debug_pages = dependencies.debug_pages
        server.start_kubelet(self._ctx, self.kubelet, settings, dependencies)

    def _flags(self, directory: Path) -> Any:
        return options.KubeletFlags(
            kube_config=str(self._kubeconfig(directory)) if self._api is not None else "",
            hostname_override=self.name,
            node_ip=ADDRESS,
            cert_directory=str(directory / "pki"),
            root_directory=str(directory / "kubelet"),
            node_labels=self._labels,
        )

    def _kubeconfig(self, directory: Path) -> Path:
        if isinstance(self._api, Cluster):
            return self._api.node_kubeconfig(self.name)
        assert self._api is not None
        path = directory / "kubeconfig"
        self._api.kubeconfig(path)
        return path

    def _configuration(self, directory: Path) -> Any:
        """Return the kubelet's configuration. Raise ValueError, with the names of all invalid fields."""
        document: scheme.Document = {
            **hollow_node.hollow_settings(directory),
            # The field is required, but no runtime serves the socket.
            "containerRuntimeEndpoint": f"unix://{directory}/none.sock",
            **self._server(directory),
            "readOnlyPort": 0,
            "healthzPort": 0,
            "clusterDNS": ["10.96.0.10"],
            "clusterDomain": "cluster.local",
            "maxPods": self._capacity["pods"].value(),
            "registerWithTaints": self._taints,
            **({"nodeStatusUpdateFrequency": "1s", "syncFrequency": "5s"} if self._quick else {}),
            **self._config,
        }
        v1beta1.set_defaults_kubelet_configuration(document)
        return scheme.to_internal(document)

    def _server(self, directory: Path) -> scheme.Document:
        """Configure the kubelet's own server, which the API server calls for logs and streams.

        Its port belongs to no other kubelet, so that no client mistakes another node of this machine for this one.
        """
        if self._api is None:
            return {"enableServer": False}
        common: scheme.Document = {"enableServer": True, "address": ADDRESS, "port": free_port()}
        if not isinstance(self._api, Cluster):
            anybody = {"anonymous": {"enabled": True}, "webhook": {"enabled": False}}
            return {**common, "authentication": anybody, "authorization": {"mode": "AlwaysAllow"}}
        serving = self._api.authority.server_pair([ADDRESS, self.name]).write(directory, "kubelet-server")
        return {
            **common,
            "tlsCertFile": str(serving[0]),
            "tlsPrivateKeyFile": str(serving[1]),
            "authentication": {"x509": {"clientCAFile": str(self._api.ca_file)}},
        }

    def _wait_until_ready(self, api: Cluster | APIServer) -> None:
        wait_for_object(
            api.store,
            "nodes",
            self.name,
            lambda node: (base.condition(node, "Ready") or {}).get("status") == "True" or None,
            timeout=_START_TIMEOUT,
            what="Ready; see what its kubelet logged",
        )


def _quantities(texts: Mapping[str, str]) -> dict[str, resource.Quantity]:
    """Parse quantities. Raise ValueError with the name of the resource."""
    quantities = {}
    for name, text in texts.items():
        try:
            quantities[name] = resource.parse_quantity(text)
        except ValueError as err:
            raise ValueError(f'capacity {name}: cannot parse "{text}": {err}') from err
    return quantities


class _QuickClock(clock.RealClock):
    """Run the tickers, which are those of the sync loop, ten times as fast."""

    def new_ticker(self, period: float) -> golang.Ticker:
        return super().new_ticker(period * _QUICK)


class _HollowBuilder(kubelet_build.PartsBuilder):
    """Build a kubelet whose probes the test can steer and which accepts its node's address."""

    def __init__(self, readiness: Readiness, *inputs: Any) -> None:
        super().__init__(*inputs)
        self._readiness = readiness

    def new_probe_manager(self, pods: kubelet_build.PodState, runner: kubecontainer.CommandRunner) -> prober.Manager:
        return SteeredManager(pods, runner, self.recorder, self.clock, self._readiness.get)

    def new_admit_handlers(self, *parts: Any) -> list[lifecycle.PodAdmitHandler]:
        return [*super().new_admit_handlers(*parts), _Annotations()]

    def put_together(self, *inputs: Any, **parts: Any) -> kubelet_module.Kubelet:
        return super().put_together(*inputs, **parts, node_ip_validator=lambda ip: None)


class _QuickBuilder(_HollowBuilder):
    """Build a hollow kubelet with a tenth of the pauses."""

    back_off_period = kubelet_build.BACK_OFF_PERIOD * _QUICK
    relist_period = _QUICK

    def new_crash_loop_back_off(self) -> flowcontrol.Backoff:
        return flowcontrol.Backoff(_QUICK, 1.0, clock=self.clock)

    new_image_back_off = new_crash_loop_back_off


class _Annotations:
    """Reject pods with an invalid behaviour annotation, because otherwise the mistake would go unnoticed."""

    def admit(self, attrs: lifecycle.PodAdmitAttributes) -> lifecycle.PodAdmitResult:
        spec = attrs.pod.spec
        names = [each.name for each in (*spec.containers, *spec.init_containers)]
        for key, text in attrs.pod.metadata.annotations.items():
            if not key.startswith(behaviour.ANNOTATION_PREFIX):
                continue
            name = key.removeprefix(behaviour.ANNOTATION_PREFIX)
            try:
                if name not in names:
                    raise ValueError(f"no container has this name; the pod has {', '.join(names)}")
                behaviour.from_json(text)
            except ValueError as err:
                return lifecycle.PodAdmitResult(False, "BadAnnotation", f"annotation {key}: {err}")
        return lifecycle.PodAdmitResult(True)


def _close_clients(dependencies: kubelet_dependencies.Dependencies) -> None:
    for client in (dependencies.kube_client, dependencies.event_client, dependencies.heartbeat_client):
        if isinstance(client, kubernetes.Clientset):
            client.close()


class _Machine(cadvisor.Cadvisor):
    """Describe this machine, but with the capacity of the hollow node."""

    def __init__(self, capacity: Mapping[str, resource.Quantity]) -> None:
        super().__init__()
        self._capacity = capacity

    def machine_info(self) -> cadvisor.MachineInfo:
        return msgspec.structs.replace(
            super().machine_info(),
            num_cores=self._capacity["cpu"].value(),
            memory_capacity=self._capacity["memory"].value(),
            swap_capacity=0,
            huge_pages=(),
        )


class _ContainerManager(cm.ContainerManagerStub):
    """Report capacity that the machine does not have: storage, and the resources of imaginary device plugins."""

    def __init__(self, capacity: Mapping[str, resource.Quantity]) -> None:
        super().__init__()
        self._storage = capacity["ephemeral-storage"]
        self._devices = {name: quantity for name, quantity in capacity.items() if name not in CAPACITY}

    def get_capacity(self, local_storage_capacity_isolation: bool) -> dict[str, resource.Quantity]:
        return {v1.RESOURCE_EPHEMERAL_STORAGE: self._storage} if local_storage_capacity_isolation else {}

    def get_device_plugin_resource_capacity(self) -> cm.DevicePluginResourceCapacity:
        return cm.DevicePluginResourceCapacity(self._devices, self._devices, [])
