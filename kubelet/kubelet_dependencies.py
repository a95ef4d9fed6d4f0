"""What a kubelet needs from outside.

Go: pkg/kubelet/kubelet.go (type Dependencies)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kubelet.observer import Observers
from pkg import golang
from pkg.apimachinery import clock
from pkg.component_base import tracing

if TYPE_CHECKING:
    from kubelet import cadvisor as kubecadvisor
    from kubelet import (
        cm,
        config,
        oom,
        server,
        watchdog,
    )
    from kubelet import container as kubecontainer
    from kubelet.cri import apis as internalapi
    from kubelet.server import auth as server_auth
    from pkg import mount_utils
    from pkg import volume as pkgvolume
    from pkg.apiserver.server import flagz
    from pkg.client_go import kubernetes
    from pkg.client_go.tools import record
    from pkg.util import iptables
    from pkg.volume.util import hostutil, subpath


@dataclass(slots=True)
class Dependencies:
    """What a kubelet needs from outside, injected so that tests and the hollow node can put their own.

    Go: pkg/kubelet/kubelet.go, Dependencies
    """

    recorder: record.EventRecorder
    remote_runtime_service: internalapi.RuntimeService
    remote_image_service: internalapi.ImageManagerService
    cadvisor_interface: kubecadvisor.Interface
    os_interface: kubecontainer.OSInterface
    mounter: mount_utils.Interface
    hostutil: hostutil.HostUtils
    subpather: subpath.Interface
    volume_plugins: list[pkgvolume.VolumePlugin]
    # None where nobody watches the kernel's log.
    new_oom_watcher: Callable[[record.EventRecorder], oom.Watcher | None] | None = None
    # None where no chain of the packet filter may be made.
    new_iptables: Callable[[], list[iptables.Interface]] | None = None
    # Made when the clients are there, for it may have to ask the API server.
    container_manager: cm.ContainerManager | None = None
    pod_config: config.PodConfig | None = None
    # The three clients are None in standalone mode. Heartbeats must not wait behind other calls.
    kube_client: kubernetes.Interface | None = None
    heartbeat_client: kubernetes.Interface | None = None
    event_client: kubernetes.Interface | None = None
    # Called after repeated failures of heartbeats: the connections may be dead.
    on_heartbeat_failure: Callable[[], None] | None = None
    clock: clock.Clock = field(default_factory=clock.RealClock)
    # Who may ask the server for what.
    auth: server_auth.KubeletAuth | None = None
    # How the server speaks TLS; without it there is no serving certificate, and it speaks plain HTTP.
    tls_options: server.TLSOptions | None = None
    # The flags, for a page of the server.
    flagz: flagz.Reader | None = None
    tracer_provider: tracing.TracerProvider = tracing.NOOP_TRACER_PROVIDER
    # Who is told what the kubelet does, and who adds pages below /debug/ to its server and to the debug socket.
    observers: Observers = field(default_factory=Observers)
    debug_pages: list[server.InstallPages] = field(default_factory=list)
    # Tells systemd that the kubelet is well; None where nobody does, as of a hollow node.
    health_checker: watchdog.HealthChecker | None = None
    # Where the kubelet leaves what it cannot run with; who started it ends then.
    failed: golang.Channel[Exception] = field(default_factory=lambda: golang.Channel(1))
