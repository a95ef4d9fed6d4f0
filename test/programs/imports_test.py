"""Test which modules are imported by a kubelet without an API server and without its own server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]

# Build, but do not run, a hollow kubelet in standalone mode, and print the imported modules.
_BUILD = """
import os
import sys
from kubelet.cri.remote import fake
from kubelet_cmd.kubelet.app import options, server
from kubelet_cmd.kubemark.app import hollow_node
from pkg import golang
from pkg.component_base import tracing

folder = sys.argv[1]
runtime = fake.FakeRuntime()
ctx, cancel = golang.with_cancel(golang.background())
with fake.FakeServer(f"unix://{folder}/cri.sock", runtime) as cri:
    flags = options.KubeletFlags(root_directory=f"{folder}/root", hostname_override="alone")
    config = options.new_kubelet_configuration()
    config.container_runtime_endpoint = cri.endpoint
    config.pod_logs_dir = f"{folder}/pod-logs"
    config.cgroups_per_qos = False
    config.enforce_node_allocatable = []
    config.enable_server = False
    settings = options.KubeletServer(flags, config)
    connect = server.connect_to_api_server(ctx, settings)
    dependencies = hollow_node.hollow_dependencies(ctx, settings, tracing.NOOP_TRACER_PROVIDER)
    connect(dependencies)
    server.create_and_init_kubelet(ctx, settings, dependencies)
    cancel()
runtime.close()
print(*sys.modules, sep="\\n", flush=True)
# As the kubelet ends: some of its threads may still be at work, and are not to be waited for.
os._exit(0)
"""
_OF_THE_CLIENT = (
    "cryptography",
    "jeepney",
    "pkg.api.certificates",
    "pkg.client_go.informers",
    "pkg.client_go.kubernetes",
    "pkg.client_go.rest",
    "pkg.client_go.tools.cache",
    "pkg.client_go.tools.clientcmd",
    "pkg.client_go.transport",
    "pkg.client_go.util.certificate",
)


# These modules belong to the live view.
_OF_THE_LIVE_VIEW = ("kubelet.liveview.collector", "kubelet.liveview.explanation", "kubelet.liveview.handlers")
# These modules serve requests, upgraded connections and traces.
_OF_THE_SERVER = (
    "h11",
    "wsproto",
    "OpenSSL",
    "opentelemetry",
    "pkg.apimachinery.util.proxy",
    "pkg.apiserver.authentication.authenticatorfactory",
    "pkg.golang.pprof",
)


def test_kubelet_does_not_need_the_live_view() -> None:
    """The kubelet does not import the live view; the caller that starts a kubelet connects the two."""
    loaded = _modules_of("import kubelet.kubelet_build, sys; print(*sys.modules, sep='\\n')")
    assert "kubelet.kubelet" in loaded
    assert not [name for name in loaded if name.startswith("kubelet.liveview")]


def _modules_of(program: str, *args: str) -> set[str]:
    """Return the modules that a program prints."""
    command = [sys.executable, "-c", program, *args]
    built = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert built.returncode == 0, built.stderr
    return set(built.stdout.splitlines())


def test_standalone_mode_does_not_load_the_client(tmp_path: Path) -> None:
    loaded = _modules_of(_BUILD, str(tmp_path))
    assert "kubelet.kubelet" in loaded
    assert not loaded & set(_OF_THE_CLIENT)
    assert not loaded & set(_OF_THE_LIVE_VIEW)
    assert not loaded & set(_OF_THE_SERVER)
