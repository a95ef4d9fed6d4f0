"""Define the external dependencies of a kubelet.

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
    """Hold the external dependencies of a kubelet, which tests and the hollow node replace with their own.

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
    # `new_oom_watcher` is None if nothing watches the kernel log.
    new_oom_watcher: Callable[[record.EventRecorder], oom.Watcher | None] | None = None
    # `new_iptables` is None if the kubelet must not create chains in iptables.
    new_iptables: Callable[[], list[iptables.Interface]] | None = None
    # The container manager is created after the clients, because it may have to call the API server.
    container_manager: cm.ContainerManager | None = None
    pod_config: config.PodConfig | None = None
    # The three clients are None in standalone mode. Heartbeats have their own client because they must not wait behind
    # other calls.
    kube_client: kubernetes.Interface | None = None
    heartbeat_client: kubernetes.Interface | None = None
    event_client: kubernetes.Interface | None = None
    # This function is called after repeated failures of heartbeats, because the connections may be dead.
    on_heartbeat_failure: Callable[[], None] | None = None
    clock: clock.Clock = field(default_factory=clock.RealClock)
    # `auth` decides which client may request what from the server.
    auth: server_auth.KubeletAuth | None = None
    # `tls_options` are the server's TLS options. Without them there is no serving certificate, and the server speaks
    # plain HTTP.
    tls_options: server.TLSOptions | None = None
    # `flagz` reads the flags for a page of the server.
    flagz: flagz.Reader | None = None
    tracer_provider: tracing.TracerProvider = tracing.NOOP_TRACER_PROVIDER
    # The kubelet reports what it does to the observers. `debug_pages` add pages below /debug/ to its server and to the
    # debug socket.
    observers: Observers = field(default_factory=Observers)
    debug_pages: list[server.InstallPages] = field(default_factory=list)
    # The health checker notifies systemd's watchdog that the kubelet is healthy. It is None without a watchdog, as in a
    # hollow node.
    health_checker: watchdog.HealthChecker | None = None
    # The kubelet sends the error with which it cannot continue to run; the code that started it then stops it.
    failed: golang.Channel[Exception] = field(default_factory=lambda: golang.Channel(1))
