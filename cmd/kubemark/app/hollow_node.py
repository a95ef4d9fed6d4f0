"""Run a real kubelet with a fake runtime, fake mounts and fake cgroups: a node that costs almost nothing.

The hollow node shows how the kubelet works where no container can run, and allows many nodes on one machine.

Go: cmd/kubemark/app/hollow_node.go, pkg/kubemark/hollow_kubelet.go
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pkg import golang, klog
from pkg.component_base import tracing

from ...kubelet.app import options, server
from .hollow_options import HollowOptions, new_parser

# These imports are late because --help must not wait for gRPC.
if TYPE_CHECKING:
    from kubelet import kubelet_dependencies
    from kubelet.cri import apis as internalapi
    from kubelet.cri.remote import fake

# At the end, the kubelet's threads get this time, in seconds, before their directory is removed.
_THREADS_END_WITHIN = 30.0

_NOTICE = "HOLLOW NODE: the container runtime is a fake that keeps pods in memory. NO CONTAINER RUNS."


class HollowNodeCommand:
    """Run the command `kubemark`. It has a few flags of its own, and passes all others to the kubelet."""

    def execute(self, args: list[str]) -> int:
        """Run the command, and return its exit code."""
        hollow = HollowOptions()
        parser = new_parser()
        kubelet_args = parser.parse_known_args(args, namespace=hollow)[1]
        if hollow.help:
            parser.print_help()
            return 0
        if any(arg.split("=")[0] in ("--config-dir", "-config-dir") for arg in kubelet_args):
            print("Error: --config-dir: the hollow node uses this flag itself; use --config instead", file=sys.stderr)
            return 1
        print(_NOTICE, file=sys.stderr, flush=True)
        try:
            with tempfile.TemporaryDirectory(prefix="hollow-kubelet.") as directory, golang.ThreadGroup() as threads:
                try:
                    return self._run(hollow, Path(directory), kubelet_args)
                finally:
                    # A thread that still writes would create the directory again during the removal.
                    for thread in threads.join(_THREADS_END_WITHIN):
                        klog.warning_s("Thread still runs, it may leave files behind", thread=thread.name)
        except OSError as err:
            print(f"Error: {err}", file=sys.stderr)
            return 1

    def _run(self, hollow: HollowOptions, directory: Path, kubelet_args: list[str]) -> int:
        endpoint = hollow.container_runtime_endpoint
        if endpoint:
            return self._run_kubelet(hollow, directory, endpoint, kubelet_args)
        from kubelet.cri.remote import fake

        endpoint = f"unix://{directory}/cri.sock"
        with fake.FakeServer(endpoint, new_runtime(hollow)):
            return self._run_kubelet(hollow, directory, endpoint, kubelet_args)

    def _run_kubelet(self, hollow: HollowOptions, directory: Path, endpoint: str, kubelet_args: list[str]) -> int:
        root = hollow.root_dir or f"{directory}/kubelet"
        flags = [
            f"--root-dir={root}",
            # By default all kubelets of a machine keep their certificates in one directory. The second node would find
            # the first node's certificate there, and would authenticate to the API server with it.
            f"--cert-dir={root}/pki",
            f"--hostname-override={hollow.name}",
            *kubelet_args,  # A --cert-dir that the user sets comes later in the arguments and takes precedence.
            f"--config-dir={write_dropin(directory, endpoint)}",
        ]
        return server.KubeletCommand(hollow_dependencies).execute(flags)


def new_hollow_node_command() -> HollowNodeCommand:
    """Return the command, which `__main__` executes with the process's arguments."""
    return HollowNodeCommand()


def new_runtime(hollow: HollowOptions) -> fake.FakeRuntime:
    """Return the fake runtime with the faults that the flags ask for."""
    from kubelet.cri.remote import fake

    runtime = fake.FakeRuntime()
    runtime.events_enabled = not hollow.no_events
    # With these logs, `kubectl logs` tells the user that no container runs.
    runtime.write_logs = True
    runtime.images.pull_delay = hollow.pull_delay
    for method, seconds in hollow.latency:
        runtime.faults.latency(method, seconds)
    return runtime


def write_dropin(directory: Path, endpoint: str) -> Path:
    """Write the configuration of a hollow node as a drop-in, and return the drop-in's directory."""
    dropins = directory / "kubelet.conf.d"
    dropins.mkdir()
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": endpoint,
        **hollow_settings(directory),
    }
    (dropins / "hollow.conf").write_text(json.dumps(settings))
    return dropins


def hollow_settings(directory: Path) -> dict[str, object]:
    """Return the configuration fields that differ on a hollow node.

    Go: GetHollowKubeletConfig
    """
    return {
        "podLogsDir": f"{directory}/pod-logs",
        # A negative size disables log rotation, which is not needed because each log has one line.
        "containerLogMaxSize": "-1",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "failCgroupV1": False,
    }


def hollow_dependencies(
    ctx: golang.Context, kubelet_server: options.KubeletServer, tracer_provider: tracing.TracerProvider
) -> kubelet_dependencies.Dependencies:
    """Return the dependencies of a hollow kubelet whose runtime listens at the configured endpoint."""
    from kubelet.cri import remote

    kc = kubelet_server.kubelet_configuration
    timeout = kc.runtime_request_timeout
    runtime_service = remote.RemoteRuntimeService(ctx, kc.container_runtime_endpoint, timeout, tracer_provider)
    image_service = remote.RemoteImageService(ctx, kc.container_runtime_endpoint, timeout, tracer_provider)
    server.validate_runtime(ctx, runtime_service, image_service)
    dependencies = new_hollow_dependencies(runtime_service, image_service)
    dependencies.tracer_provider = tracer_provider
    return dependencies


def new_hollow_dependencies(
    runtime_service: internalapi.RuntimeService, image_service: internalapi.ImageManagerService
) -> kubelet_dependencies.Dependencies:
    """Return dependencies with which a kubelet creates its directories but changes nothing else on the machine.

    Go: NewHollowKubelet
    """
    from kubelet import cadvisor, cm, kubelet_dependencies
    from kubelet.container import testing as containertesting
    from pkg.client_go.tools import record
    from pkg.mount_utils import testing as mounttesting
    from pkg.volume.util.hostutil import testing as hostutiltesting
    from pkg.volume.util.subpath import testing as subpathtesting

    from ...kubelet.app import plugins

    return kubelet_dependencies.Dependencies(
        recorder=record.StandaloneRecorder(),
        remote_runtime_service=runtime_service,
        remote_image_service=image_service,
        container_manager=cm.ContainerManagerStub(),
        cadvisor_interface=cadvisor.Cadvisor(),
        os_interface=containertesting.FakeOS(),
        mounter=mounttesting.FakeMounter(),
        hostutil=hostutiltesting.FakeHostUtil(),
        subpather=subpathtesting.FakeSubpather(),
        volume_plugins=plugins.probe_volume_plugins(),
    )
