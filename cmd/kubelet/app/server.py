"""Run the kubelet's command: read the configuration, build the dependencies, and run until a signal arrives.

Go: cmd/kubelet/app/server.go
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource as rlimit
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

from kubelet.apis.config import validation
from pkg import features, golang, klog
from pkg.apimachinery.api import resource
from pkg.apimachinery.util import wait
from pkg.apiserver.server import flagz
from pkg.component_base import tracing, version
from pkg.component_base.cli import flag as cliflag
from pkg.component_base.featuregate import FeatureGateError
from pkg.golang import debug
from pkg.util import filesystem, flock, sdnotify

from . import configuration, explain, open_ports, options, supported, zpages
from .configuration import Loaded
from .lockfile import watch_for_lockfile_contention
from .signals import ShutdownSignal

# Modules that only a running kubelet needs are imported where they are used: --help, --version and `config explain`
# must not wait for gRPC, and a kubelet without an API server must not load its client.
if TYPE_CHECKING:
    from cri_api.v1 import api_pb2 as runtimeapi

    from kubelet import cm, kubelet_build, kubelet_dependencies, watchdog
    from kubelet import kubelet as kubelet_module
    from kubelet import oom as oomwatcher
    from kubelet.cadvisor.info import v1 as cadvisorapi
    from kubelet.cri import apis as internalapi
    from pkg.client_go.tools import record
    from pkg.utils import cpuset

    MakeDependencies = Callable[
        [golang.Context, options.KubeletServer, tracing.TracerProvider], kubelet_dependencies.Dependencies
    ]

ROOT_LOCK_FILE = "kubelet.lock"

# After the context is canceled, the threads get this time, in seconds, to finish their work.
_SHUTDOWN_GRACE = 1.5
# At the end, the trace collector gets this time, in seconds, to receive the last spans.
_SPANS_SENT_WITHIN = 0.5

# When the port of /healthz is in use, the kubelet tries again after this time, in seconds.
_HEALTHZ_RETRY = 5.0

# The kubelet asks the runtime for its configuration this many times, with this pause in seconds, because the runtime
# may still be starting.
_RUNTIME_CONFIG_TRIES = 3
_RUNTIME_CONFIG_PAUSE = 2.0

# From this Kubernetes version on, a runtime must report its cgroup driver.
_RUNTIME_CONFIG_REQUIRED_IN = "1.37.0"

_LONG = """\
The kubelet is the agent of a Kubernetes node. It reads pods from files, a URL and the API
server, and keeps their containers running with a container runtime that implements CRI.

Without --kubeconfig it runs in standalone mode, with the pods of --pod-manifest-path and --manifest-url.
"""

_USAGE = """Usage:
  kubelet [flags]
  kubelet config explain [-o table|json] [flags]   show every effective value and its source
  kubelet explain pod NAMESPACE/NAME [-o table|json] [flags]
                                                   ask the running kubelet to explain a pod's state, with evidence
  kubelet explain node [-o table|json] [flags]     ask it for the state of the node and of each pod
  kubelet explain evictions [-o table|json] [flags]
                                                   ask it which pods would be evicted now, and why
  kubelet orphans [--remove] [-o table|json] [flags]
                                                   list the directories of pods that no longer exist; with
                                                   --remove, remove those below which nothing is mounted

Flags:
"""


class KubeletCommand:
    """Run the command `kubelet`. `execute` returns the exit code.

    `make_dependencies` returns the kubelet's dependencies. By default the kubelet works on the node itself; kubemark
    passes fakes.
    """

    def __init__(self, make_dependencies: MakeDependencies | None = None) -> None:
        self._make_dependencies = make_dependencies or unsecured_dependencies

    def execute(self, args: list[str]) -> int:
        """Run the command. Each error that a user can cause is reported as one message."""
        try:
            if args[:2] == ["config", "explain"]:
                return _explain(args[2:])
            if args[:1] == ["explain"]:
                return _explain_running(args[1:])
            if args[:1] == ["orphans"]:
                return _orphans(args[1:])
            return self._run(args)
        except cliflag.FlagError as err:
            return _fail(f"failed to parse kubelet flag: {err}")
        except validation.ConfigurationError as err:
            return _fail("failed to validate kubelet configuration:", *(str(fault) for fault in err.exceptions))
        except (ValueError, OSError, FeatureGateError) as err:
            return _fail(str(err))

    def _run(self, args: list[str]) -> int:
        loaded = configuration.parse_flags(args)
        if loaded.arguments:
            raise ValueError(f"unknown command {loaded.arguments[0]}")
        if _prints_help_or_version(loaded):
            return 0
        configuration.load(loaded, args)
        _init_logs(loaded)
        validation.validate_kubelet_configuration(loaded.kubelet_configuration, features.feature_gate)
        _check_tls(loaded)
        supported.check_supported(loaded)
        _log_configuration(loaded)
        open_ports.warn_of_open_ports(loaded.kubelet_configuration)
        _init_metrics(loaded)
        server = options.KubeletServer(
            loaded.kubelet_flags,
            loaded.kubelet_configuration,
            flagz.FlagSetReader(loaded.flag_set, classified=("manifest-url-header",)),
        )
        return _run_until_signalled(server, self._make_dependencies)


def new_kubelet_command() -> KubeletCommand:
    """Return the command, which `__main__` executes with the process's arguments."""
    return KubeletCommand()


def _fail(*lines: str) -> int:
    klog.flush()
    with contextlib.suppress(OSError):
        print("Error: " + "\n  ".join(lines), file=sys.stderr)
    return 1


def _explain(args: list[str]) -> int:
    output, rest = _take_output_flag(args)
    loaded = configuration.parse_flags(rest)
    if loaded.arguments:
        raise ValueError(f"unknown argument {loaded.arguments[0]}")
    if _prints_help_or_version(loaded):
        return 0
    configuration.load(loaded, rest)
    sys.stdout.write(explain.render(explain.explain(loaded), output))
    sys.stdout.flush()
    validation.validate_kubelet_configuration(loaded.kubelet_configuration, features.feature_gate)
    return 0


def _explain_running(args: list[str]) -> int:
    """Print what the running kubelet explains. Return 0 if it has responded, whatever the response says."""
    from . import explain_running

    output, rest = _take_output_flag(args)
    loaded = configuration.parse_flags(rest)
    if _prints_help_or_version(loaded):
        return 0
    match loaded.arguments:
        case [explain_running.POD, pod]:
            what = explain_running.POD
        case [(explain_running.NODE | explain_running.EVICTIONS) as what]:
            pod = ""
        case _:
            raise ValueError(
                "explain needs an argument: `explain pod NAMESPACE/NAME`, `explain node`, or `explain evictions`"
            )
    configuration.load(loaded, rest)
    found = explain_running.ask(loaded.kubelet_flags.root_directory, what, pod)
    sys.stdout.write(explain_running.render(found, what, output))
    sys.stdout.flush()
    return 0


def _orphans(args: list[str]) -> int:
    """Return 0 if no orphans are left, and 1 if there are any or if that cannot be determined."""
    from pkg import mount_utils

    from . import orphans

    output, rest = _take_output_flag(args)
    wanted = [arg for arg in rest if arg != "--remove"]
    loaded = configuration.parse_flags(wanted)
    if loaded.arguments:
        raise ValueError(f"unknown argument {loaded.arguments[0]}")
    if _prints_help_or_version(loaded):
        return 0
    configuration.load(loaded, wanted)
    server = options.KubeletServer(loaded.kubelet_flags, loaded.kubelet_configuration)
    try:
        found = orphans.find(server)
    except orphans.UnknownPodsError as err:
        raise ValueError(f"cannot determine the orphans: {err}") from err
    if len(wanted) < len(rest):
        results = orphans.remove(found, mount_utils.Mounter())
    else:
        results = [orphans.Result(orphan) for orphan in found]
    sys.stdout.write(orphans.render(results, output))
    sys.stdout.flush()
    return int(any(not result.removed for result in results))


def _take_output_flag(args: list[str]) -> tuple[str, list[str]]:
    """Return the value of -o, which belongs to the subcommand alone, and the other arguments."""
    output, rest = explain.TABLE, []
    remaining = iter(args)
    for arg in remaining:
        name, has_value, value = arg.partition("=")
        if name in ("-o", "--output"):
            output = value if has_value else next(remaining, "")
        else:
            rest.append(arg)
    if output not in (explain.TABLE, explain.JSON):
        raise ValueError(f'unknown output format "{output}": expected {explain.TABLE} or {explain.JSON}')
    return output, rest


def _prints_help_or_version(loaded: Loaded) -> bool:
    """Report whether help or the version was requested and printed. Nothing else is done in that case."""
    if loaded.global_flags.help:
        print(f"{_LONG}\n{_USAGE}{loaded.flag_set.usages()}", end="")
        return True
    if loaded.global_flags.version:
        _print_version(loaded.global_flags.version)
        return True
    return False


def _print_version(how: str) -> None:
    info = version.get()
    if how == "raw":
        print(repr(info))
    else:
        print(f"Kubernetes {info} (python kubelet {info.version})")


def _init_logs(loaded: Loaded) -> None:
    """Configure the logging.

    Go: k8s.io/component-base/logs/api/v1/options.go, ValidateAndApplyAsField
    """
    log = loaded.kubelet_configuration.logging
    # Validation later reports a wrong format together with all other faults.
    if log.format in ("text", "json"):
        klog.set_format(log.format)
    klog.set_verbosity(log.verbosity)
    klog.set_vmodule(",".join(f"{item.file_pattern}={item.verbosity}" for item in log.vmodule))
    klog.capture_logging()


def _init_metrics(loaded: Loaded) -> None:
    features.feature_gate.add_metrics()
    if loaded.kubelet_configuration.show_hidden_metrics_for_version:
        from pkg.component_base import metrics  # This import is late because few configurations need it.

        metrics.set_show_hidden()


def _check_tls(loaded: Loaded) -> None:
    kc = loaded.kubelet_configuration
    cliflag.check_tls_cipher_suites(kc.tls_cipher_suites)
    cliflag.check_tls_version(kc.tls_min_version)


def _log_configuration(loaded: Loaded) -> None:
    if os.geteuid() != 0:
        err = PermissionError("kubelet needs to run as uid `0`. It is being run as " + str(os.geteuid()))
        klog.error_s(err, "Kubelet running with insufficient permissions")
    for name in loaded.skipped_dropin_files:
        klog.v(4).info_s("Skipped file in drop-in directory (does not have .conf extension)", file=name)
    for fault, source in loaded.passed_over:
        klog.warning_s("Ignored a part of the configuration", source=source, fault=fault)
    for flag in loaded.flag_set:
        klog.v(1).info_s(f"FLAG: --{flag.name}={_shown(flag)}")
    if klog.v(5).enabled:
        for row in explain.explain(loaded):
            klog.v(5).info_s("KubeletConfiguration", field=row.field, value=row.value, source=row.source)


def _shown(flag: cliflag.Flag) -> str:
    return "<masked>" if flag.name == "manifest-url-header" else f'"{flag.value.string()}"'


def _run_until_signalled(server: options.KubeletServer, make_dependencies: MakeDependencies) -> int:
    """Run the kubelet in its own thread, while the main thread waits for signals. Return the exit code."""
    golang.install_crash_handler()
    debug.give_back_large_blocks()
    debug.take_short_turns()
    lock_root_directory(server.kubelet_flags.root_directory)
    signals = ShutdownSignal()
    ctx, cancel = golang.with_cancel(golang.background())
    failures: list[Exception] = []

    def target() -> None:
        try:
            run(ctx, server, make_dependencies)
        except golang.Canceled:
            # The signal arrived before everything was started.
            pass
        except (ValueError, OSError) as err:
            # The node or its configuration is at fault, and the message says enough without a stack trace.
            failures.append(err)
        except Exception as err:  # This is the only place that can tell the user why the kubelet failed.
            klog.error_s(err, "Kubelet failed", stacktrace=klog.stacktrace(err))
            failures.append(err)
        finally:
            signals.wake()

    thread = golang.go(target, name="kubelet")
    signals.wait()
    if signals.received is not None:
        klog.info_s("Received shutdown signal, containers are left running", signal=signals.received)
    cancel()
    thread.join(_SHUTDOWN_GRACE)
    return _fail(f"failed to run Kubelet: {failures[0]}") if failures else 0


def exit_process(code: int) -> NoReturn:
    """End the process without waiting for threads that are in the middle of a call."""
    try:
        klog.flush()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # The process ends here also when the flush fails, for example on a full disk. The interpreter's own exit would
        # wait for threads.
        os._exit(code)


def lock_root_directory(root: str) -> None:
    """Make sure that the root directory is usable and that no other kubelet uses it. Raise ValueError or OSError.

    DIVERGES (safer): a kubelet does not start while another one uses its root directory.
    Go: cmd/kubelet/app/server.go, run: the Go kubelet checks only the file that --lock-file names, if it is set.
    Why: two kubelets with one directory would undo each other's work on every pod.
    Test: test/programs/kubelet_test.py:test_a_second_kubelet_names_the_first
    """
    try:
        filesystem.mkdir_all(root, 0o750)
        flock.try_acquire(str(Path(root) / ROOT_LOCK_FILE))
    except flock.LockHeldError as err:
        holder = f"process {err.pid}" if err.pid else "another process"
        raise ValueError(
            f"root directory {root} is in use by {holder}, which holds the lock {err.path}; "
            "stop it, or choose another directory with --root-dir"
        ) from err
    except OSError as err:
        raise OSError(f"root directory {root} cannot be used: {err.strerror}: {err.filename or root}") from err


def run(ctx: golang.Context, server: options.KubeletServer, make_dependencies: MakeDependencies) -> None:
    """Start the kubelet, and return when the context ends. Raise the error that prevents the start."""
    flags = server.kubelet_flags
    info = version.get()
    klog.info_s("Kubelet version", kubeletVersion=str(info), python=info.python_version, release=info.version)
    health_checker = start_health_checker(ctx)
    done = _acquire_lock_file(flags)
    options.validate_kubelet_server(server)
    check_swap(server)
    tracer_provider = new_tracer_provider(server)
    _start_healthz_server(ctx, server)
    try:
        connect = connect_to_api_server(ctx, server, tracer_provider)
        kube_deps = make_dependencies(ctx, server, tracer_provider)
        connect(kube_deps)
        if kube_deps.container_manager is None:
            kube_deps.container_manager = new_container_manager(server, kube_deps)
        kube_deps.flagz = server.flagz
        kube_deps.health_checker = health_checker
        zpages.init_configz(server.kubelet_configuration)
        _apply_process_limits(server)
        run_kubelet(ctx, server, kube_deps)
        debug.spare_what_stays()
        _notify_systemd()
        if failure := golang.select(ctx.done(), done, kube_deps.failed).took(kube_deps.failed):
            raise failure.value
    finally:
        zpages.delete_configz()
        tracer_provider.shutdown(_SPANS_SENT_WITHIN)


def start_health_checker(ctx: golang.Context) -> watchdog.HealthChecker:
    """Start the systemd watchdog before anything that takes time.

    Raise ValueError if the watchdog's settings in the environment are invalid.
    """
    from kubelet import watchdog

    try:
        health_checker = watchdog.HealthChecker()
    except ValueError as err:
        raise ValueError(f"create health checker: {err}") from err
    health_checker.start(ctx)
    return health_checker


def new_tracer_provider(server: options.KubeletServer) -> tracing.TracerProvider:
    """Return a provider that records spans, if the configuration names a collector for them."""
    config = server.kubelet_configuration.tracing
    if config is None:
        return tracing.NOOP_TRACER_PROVIDER
    from pkg.component_helpers.node import util as nodeutil

    host = nodeutil.get_hostname(server.kubelet_flags.hostname_override)
    return tracing.new_provider(config, {"service.name": "kubelet", "host.name": host})


def connect_to_api_server(
    ctx: golang.Context,
    server: options.KubeletServer,
    tracer_provider: tracing.TracerProvider = tracing.NOOP_TRACER_PROVIDER,
) -> Callable[[kubelet_dependencies.Dependencies], None]:
    """Create the API clients and the server's authentication before anything else is started or waited for.

    This order reports faults of the credentials and the configuration at once. Return a function that adds the results
    to the kubelet's dependencies.
    """
    from pkg.component_helpers.node import util as nodeutil

    from . import clients

    flags, kc = server.kubelet_flags, server.kubelet_configuration
    name = nodeutil.get_hostname(flags.hostname_override)
    api_clients: clients.Clients | None = None
    if flags.kube_config:
        api_clients = clients.build_clients(ctx, server, name, tracer_provider)
    elif flags.bootstrap_kubeconfig:
        raise ValueError("--bootstrap-kubeconfig needs --kubeconfig, the file for the node's own credentials")
    else:
        klog.info_s("Standalone mode, no API client")
    tls_options = clients.initialize_tls(flags, kc, name) if kc.enable_server or api_clients is not None else None
    server_auth = None
    # DIVERGES (fault of Go): a kubelet without a server starts with any authentication and authorization settings.
    # Go: cmd/kubelet/app/server.go, run: the Go kubelet does not start if it would need a webhook but has no API
    # server.
    # Why: without a server no client is ever authenticated.
    # Test: test/programs/server_test.py:test_without_a_server_nobody_has_to_be_asked_who_he_is
    if kc.enable_server:
        from . import auth

        kube_client = None if api_clients is None else api_clients.kube_client
        server_auth, follow_client_ca = auth.build_auth(name, kube_client, kc)
        follow_client_ca(ctx)

    def connect(kube_deps: kubelet_dependencies.Dependencies) -> None:
        kube_deps.tls_options, kube_deps.auth = tls_options, server_auth
        if api_clients is None:
            return
        kube_deps.kube_client = api_clients.kube_client
        kube_deps.event_client = api_clients.event_client
        kube_deps.heartbeat_client = api_clients.heartbeat_client
        kube_deps.on_heartbeat_failure = api_clients.on_heartbeat_failure
        kube_deps.recorder = clients.new_event_recorder(ctx, api_clients.event_client, name)
        if api_clients.expiry_warning is not None:
            api_clients.expiry_warning.recorder = kube_deps.recorder

    return connect


def check_swap(server: options.KubeletServer, swaps: str = "/proc/swaps") -> None:
    """Check that the node's swap fits the configuration. Raise ValueError if it does not.

    Go: run, pkg/kubelet/cm/container_manager_linux.go, NewContainerManager
    """
    from kubelet import util
    from kubelet.types import constants
    from kubelet.util import swap

    config = server.kubelet_configuration
    behavior = config.memory_swap.swap_behavior
    if behavior == constants.LIMITED_SWAP and not util.is_cgroup2_unified_mode():
        raise ValueError("swap feature is enabled and LimitedSwap but it is only supported with cgroupv2")
    if config.fail_swap_on and swap.is_swap_on(swaps):
        raise ValueError(
            "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false"
        )
    if not config.fail_swap_on and not behavior:
        klog.info_s(
            "NoSwap is set due to memorySwapBehavior not specified", memorySwapBehavior=behavior, FailSwapOn=False
        )


def _acquire_lock_file(flags: options.KubeletFlags) -> golang.Channel[None]:
    """Acquire the lock of --lock-file.

    Return a channel that is closed when another process opens the file and the flags say that the kubelet exits then.
    """
    done: golang.Channel[None] = golang.Channel()
    if flags.exit_on_lock_contention and not flags.lock_file_path:
        raise ValueError("cannot exit on lock file contention: no lock file specified")
    if flags.lock_file_path:
        klog.info_s("Acquiring file lock", path=flags.lock_file_path)
        try:
            flock.acquire(flags.lock_file_path)
        except OSError as err:
            raise OSError(f'unable to acquire file lock on "{flags.lock_file_path}": {err}') from err
        if flags.exit_on_lock_contention:
            klog.info_s("Watching for inotify events", path=flags.lock_file_path)
            watch_for_lockfile_contention(flags.lock_file_path, done)
    return done


def unsecured_dependencies(
    ctx: golang.Context, server: options.KubeletServer, tracer_provider: tracing.TracerProvider
) -> kubelet_dependencies.Dependencies:
    """Return the kubelet's dependencies on the node, without the authentication of its server."""
    from kubelet import cadvisor, kubelet_dependencies
    from kubelet import container as kubecontainer
    from kubelet.cri import remote
    from pkg import mount_utils
    from pkg.client_go.tools import record
    from pkg.util import iptables
    from pkg.volume.util import hostutil, subpath

    from . import plugins

    kc = server.kubelet_configuration
    # The node's configuration is built before the calls to the runtime, so that faults of the configuration are
    # reported first.
    node_config = _node_config(server)
    timeout = kc.runtime_request_timeout
    runtime_service = remote.RemoteRuntimeService(ctx, kc.container_runtime_endpoint, timeout, tracer_provider)
    image_endpoint = kc.image_service_endpoint or kc.container_runtime_endpoint
    image_service = remote.RemoteImageService(ctx, image_endpoint, timeout, tracer_provider)
    validate_runtime(ctx, runtime_service, image_service)
    get_cgroup_driver_from_cri(ctx, server, runtime_service)
    mounter = mount_utils.Mounter()
    machine = cadvisor.Cadvisor(
        root_path=server.kubelet_flags.root_directory,
        cgroup_roots=_cgroup_roots(dataclasses.replace(node_config, cgroup_driver=kc.cgroup_driver)),
        containers=cadvisor.RuntimeContainers(runtime_service, image_service),
    )
    return kubelet_dependencies.Dependencies(
        recorder=record.StandaloneRecorder(),
        tracer_provider=tracer_provider,
        remote_runtime_service=runtime_service,
        remote_image_service=image_service,
        cadvisor_interface=machine,
        os_interface=kubecontainer.RealOS(),
        mounter=mounter,
        hostutil=hostutil.HostUtil(),
        subpather=subpath.Subpather(mounter),
        volume_plugins=plugins.probe_volume_plugins(),
        new_oom_watcher=_new_oom_watcher,
        new_iptables=iptables.new_best_effort,
    )


def _new_oom_watcher(recorder: record.EventRecorder) -> oomwatcher.Watcher | None:
    """Return a watcher for OOM kills, or None if the kubelet may not read the kernel's log.

    DIVERGES (safer): a kubelet that may not read the kernel's log starts, and logs that there will be no SystemOOM
    events.
    Go: pkg/kubelet/kubelet.go, NewMainKubelet: the Go kubelet does not start, except in a user namespace with the gate
    for it.
    Why: those events only inform people, and the kubelet does all its work without them.
    Test: test/programs/server_test.py:test_kernel_log_that_may_not_be_read
    """
    from kubelet import oom

    try:
        return oom.OomWatcher(recorder)
    except OSError as err:
        klog.error_s(err, "Failed to create an oomWatcher, there will be no SystemOOM events")
        return None


def new_container_manager(
    server: options.KubeletServer, kube_deps: kubelet_dependencies.Dependencies
) -> cm.ContainerManager:
    """Return the container manager.

    Raise ValueError if the configuration does not fit the node, and OSError if the cgroups cannot be used.
    """
    from kubelet import cm

    config = dataclasses.replace(_node_config(server), cgroup_driver=server.kubelet_configuration.cgroup_driver)
    reserved_cpus = server.kubelet_configuration.reserved_system_cpus
    if reserved_cpus:
        _reserve_system_cpus(config, get_reserved_cpus(kube_deps.cadvisor_interface.machine_info(), reserved_cpus))
    return cm.ContainerManagerImpl(
        kube_deps.mounter, kube_deps.cadvisor_interface, config, kube_deps.recorder, kube_deps.kube_client
    )


def get_reserved_cpus(machine_info: cadvisorapi.MachineInfo, cpus: str) -> cpuset.CPUSet:
    """Return the reserved CPUs. Raise ValueError if the list is malformed or names CPUs that do not exist."""
    from kubelet.cm.cpumanager import topology
    from pkg.utils import cpuset

    try:
        online = topology.discover(machine_info).cpu_details.cpus()
    except ValueError as err:
        raise ValueError(f"unable to discover CPU topology info: {err}") from err
    try:
        reserved = cpuset.parse(cpus)
    except ValueError as err:
        raise ValueError(f"unable to parse reserved-cpus list: {err}") from err
    if not reserved <= online:
        raise ValueError(f"reserved-cpus: {cpus} is not a subset of online-cpus: {online}")
    return reserved


def _reserve_system_cpus(config: cm.NodeConfig, cpus: cpuset.CPUSet) -> None:
    """Let the number of reserved CPUs replace the CPU quantities in kubeReserved and systemReserved."""
    about = {"kubeReserved": config.kube_reserved, "systemReserved": config.system_reserved}
    klog.info_s(
        "Option --reserved-cpus is specified, it will overwrite the cpu setting in KubeReserved and SystemReserved",
        **about,
    )
    config.kube_reserved.pop("cpu", None)
    config.system_reserved["cpu"] = resource.parse_quantity(str(len(cpus)))
    config.reserved_system_cpus = cpus
    klog.info_s("After cpu setting is overwritten", **about)


def _cgroup_roots(config: cm.NodeConfig) -> list[str]:
    """Return the cgroups for which cAdvisor collects statistics, in addition to the machine and the containers."""
    from kubelet.cm import helpers

    roots = (
        helpers.node_allocatable_root(config.cgroup_root, config.cgroups_per_qos, config.cgroup_driver),
        _kubelet_cgroup(config.kubelet_cgroups_name),
        config.runtime_cgroups_name,
        config.system_cgroups_name,
    )
    return [root for root in roots if root]


def _kubelet_cgroup(kubelet_cgroups: str) -> str:
    """Return the cgroup of this process, which the configuration may name, or "" if it is unknown."""
    from kubelet.cm import helpers

    try:
        return helpers.get_kubelet_container(kubelet_cgroups)
    except (OSError, LookupError) as err:
        klog.info_s("Failed to get the kubelet's cgroup. Kubelet system container metrics may be missing.", err=err)
        return ""


class _Service(Protocol):
    """Define what the validation needs from a client of the container runtime."""

    def validate_service_connection(self, ctx: golang.Context) -> None: ...


def validate_runtime(ctx: golang.Context, *services: _Service) -> None:
    """Ask the container runtime which versions of CRI it supports.

    Raise ConnectionError if no runtime responds or if it does not support CRI v1, and Canceled if the context ends
    first.
    """
    for service in services:
        try:
            service.validate_service_connection(ctx)
        except ConnectionError:
            if ctx.err() is not None:
                raise golang.Canceled from None
            raise


def get_cgroup_driver_from_cri(
    ctx: golang.Context, server: options.KubeletServer, runtime_service: internalapi.RuntimeService
) -> None:
    """Use the cgroup driver that the runtime reports, if it reports one.

    With a different driver than the runtime's, the kubelet would look for pods in the wrong cgroups and would kill
    these pods. Raise ConnectionError if the runtime does not respond, and Canceled if the context ends first.
    """
    import grpc
    from cri_api.v1 import api_pb2 as runtimeapi

    from kubelet import metrics
    from kubelet.cri.errors import RemoteError

    kc = server.kubelet_configuration
    try:
        response = _runtime_config(ctx, runtime_service)
    except RemoteError as err:
        if err.code is not grpc.StatusCode.UNIMPLEMENTED:
            raise ConnectionError(str(err)) from err
        klog.info_s(
            "CRI implementation should be updated to support RuntimeConfig. "
            "Falling back to using cgroupDriver from kubelet config."
        )
        metrics.CRI_LOSING_SUPPORT.labels(_RUNTIME_CONFIG_REQUIRED_IN).set(1)
        return
    if response.HasField("linux"):
        systemd = response.linux.cgroup_driver == runtimeapi.CgroupDriver.SYSTEMD
        kc.cgroup_driver = "systemd" if systemd else "cgroupfs"
        klog.info_s("Using cgroup driver setting received from the CRI runtime", cgroupDriver=kc.cgroup_driver)


def _runtime_config(
    ctx: golang.Context, runtime_service: internalapi.RuntimeService
) -> runtimeapi.RuntimeConfigResponse:
    """Return the runtime's configuration. Try several times, because the runtime may still be starting.

    Raise RemoteError and Canceled.
    """
    import grpc

    from kubelet.cri.errors import RemoteError

    for _ in range(_RUNTIME_CONFIG_TRIES - 1):
        try:
            return runtime_service.runtime_config(ctx)
        except RemoteError as err:
            if err.code is grpc.StatusCode.UNIMPLEMENTED:
                raise
        if ctx.wait(_RUNTIME_CONFIG_PAUSE):
            raise golang.Canceled
    return runtime_service.runtime_config(ctx)


def _node_config(server: options.KubeletServer) -> cm.NodeConfig:
    from kubelet import cm, eviction
    from pkg.component_helpers.node import util as nodeutil

    kc = server.kubelet_configuration
    if kc.cgroups_per_qos and not kc.cgroup_root:
        klog.info_s("--cgroups-per-qos enabled, but --cgroup-root was not specified.  Defaulting to /")
        kc.cgroup_root = "/"
    return cm.NodeConfig(
        kubelet_root_dir=str(Path(server.kubelet_flags.root_directory).absolute()),
        device_plugin_directory=os.path.abspath(server.kubelet_flags.device_plugin_directory),
        await_device_plugins=server.kubelet_flags.await_device_plugins,
        node_name=nodeutil.get_hostname(server.kubelet_flags.hostname_override),
        cgroups_per_qos=kc.cgroups_per_qos,
        cgroup_root=kc.cgroup_root,
        pod_pids_limit=kc.pod_pids_limit,
        enforce_cpu_limits=kc.cpu_cfs_quota,
        cpu_cfs_quota_period=kc.cpu_cfs_quota_period,
        cpu_manager_policy=kc.cpu_manager_policy,
        cpu_manager_policy_options=kc.cpu_manager_policy_options,
        cpu_manager_reconcile_period=kc.cpu_manager_reconcile_period,
        topology_manager_policy=kc.topology_manager_policy,
        topology_manager_scope=kc.topology_manager_scope,
        topology_manager_policy_options=kc.topology_manager_policy_options,
        memory_manager_policy=kc.memory_manager_policy,
        memory_manager_reserved_memory=kc.reserved_memory,
        runtime_cgroups_name=server.kubelet_flags.container_runtime_options.runtime_cgroups,
        system_cgroups_name=kc.system_cgroups,
        kubelet_cgroups_name=kc.kubelet_cgroups,
        kubelet_oom_score_adj=kc.oom_score_adj,
        protect_kernel_defaults=kc.protect_kernel_defaults,
        kube_reserved_cgroup_name=kc.kube_reserved_cgroup,
        system_reserved_cgroup_name=kc.system_reserved_cgroup,
        enforce_node_allocatable=frozenset(kc.enforce_node_allocatable),
        qos_reserved=_parse_qos_reserved(kc.qos_reserved),
        memory_reservation_policy=kc.memory_reservation_policy,
        kube_reserved=parse_resource_list(kc.kube_reserved, "--kube-reserved"),
        system_reserved=parse_resource_list(kc.system_reserved, "--system-reserved"),
        hard_eviction_thresholds=[]
        if server.kubelet_flags.experimental_node_allocatable_ignore_eviction_threshold
        else eviction.parse_threshold_config([], kc.eviction_hard, {}, {}, {}),
    )


def _parse_qos_reserved(values: Mapping[str, str]) -> dict[str, int]:
    from kubelet import cm

    try:
        return cm.parse_qos_reserved(values)
    except ValueError as err:
        raise ValueError(f"--qos-reserved value failed to parse: {err}") from err


_RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")


def parse_resource_list(values: Mapping[str, str], flag: str) -> dict[str, resource.Quantity]:
    """Return the quantities by resource name. Raise ValueError with the name of the flag."""
    result = {}
    for name, text in values.items():
        prefix = f"{flag} value failed to parse:"
        if name not in _RESERVABLE:
            raise ValueError(f'{prefix} cannot reserve "{name}" resource')
        try:
            quantity = resource.parse_quantity(text)
        except ValueError as err:
            raise ValueError(f'{prefix} failed to parse quantity "{text}" for "{name}" resource: {err}') from err
        if quantity.sign() < 0:
            raise ValueError(f'{prefix} resource quantity for "{name}" cannot be negative: {text}')
        result[name] = quantity
    return result


def _apply_process_limits(server: options.KubeletServer) -> None:
    """Set the OOM score and the limit of open files. A failure of either does not prevent the start."""
    from pkg.util import oom

    kc = server.kubelet_configuration
    try:
        oom.OOMAdjuster().apply_oom_score_adj(0, kc.oom_score_adj)
    except (OSError, ValueError) as err:
        klog.warning_s("Failed to ApplyOOMScoreAdj", err=str(err))
    try:
        rlimit.setrlimit(rlimit.RLIMIT_NOFILE, (kc.max_open_files, kc.max_open_files))
    except (OSError, ValueError) as err:
        # Without the right to raise the hard limit, the hard limit is the highest possible value.
        _, hard = rlimit.getrlimit(rlimit.RLIMIT_NOFILE)
        rlimit.setrlimit(rlimit.RLIMIT_NOFILE, (hard, hard))
        klog.warning_s("Failed to set rlimit on max file handles", err=str(err), limit=hard)


def run_kubelet(
    ctx: golang.Context, server: options.KubeletServer, kube_deps: kubelet_dependencies.Dependencies
) -> None:
    """Create the kubelet and start its threads. Return when they are running."""
    from pkg import credentialprovider

    klog.v(2).info_s("Using root directory", path=server.kubelet_flags.root_directory)
    credentialprovider.set_preferred_dockercfg_path(server.kubelet_flags.root_directory)
    try:
        kubelet = create_and_init_kubelet(ctx, server, kube_deps)
    except (ValueError, OSError) as err:
        raise ValueError(f"failed to create kubelet: {err}") from err
    start_kubelet(ctx, kubelet, server, kube_deps)
    klog.info_s("Started kubelet")


def create_and_init_kubelet(
    ctx: golang.Context,
    server: options.KubeletServer,
    kube_deps: kubelet_dependencies.Dependencies,
    new_builder: Callable[..., kubelet_build.PartsBuilder] | None = None,
) -> kubelet_module.Kubelet:
    """Create the kubelet and record its start event. Raise ValueError if the node's name or addresses are invalid.

    A hollow node passes `new_builder`, which is called like PartsBuilder and makes fake parts.
    """
    from kubelet import kubelet_build, liveview
    from pkg.component_helpers.node import util as nodeutil

    flags, kc = server.kubelet_flags, server.kubelet_configuration
    name = nodeutil.get_hostname(flags.hostname_override)
    try:
        node_ips, invalid_node_ips = nodeutil.parse_node_ip_argument(flags.node_ip, flags.cloud_provider)
    except ValueError as err:
        raise ValueError(f'bad --node-ip "{flags.node_ip}": {err}') from err
    if invalid_node_ips:
        klog.info_s("Could not parse some node IP(s), ignoring them", IPs=invalid_node_ips)
    history = liveview.observe(kube_deps)
    kubelet = kubelet_build.new_main_kubelet(
        ctx,
        kc,
        kube_deps,
        kubelet_build.KubeletOptions(
            hostname=name,
            node_name=name,
            node_ips=node_ips,
            root_directory=str(Path(flags.root_directory).absolute()),
            node_labels=flags.node_labels,
            minimum_gc_age=flags.minimum_gc_age,
            max_per_pod_container_count=flags.max_per_pod_container_count,
            max_container_count=flags.max_container_count,
            seccomp_default=flags.seccomp_default or kc.seccomp_default,
            ignore_eviction_threshold=flags.experimental_node_allocatable_ignore_eviction_threshold,
            cloud_provider=flags.cloud_provider,
            cert_directory=str(Path(flags.cert_directory).absolute()),
            image_credential_provider_config_path=flags.container_runtime_options.image_credential_provider_config_path,
            image_credential_provider_bin_dir=flags.container_runtime_options.image_credential_provider_bin_dir,
            pull_critical_images_first=flags.pull_critical_images_first,
            read_rotated_logs=flags.read_rotated_logs,
        ),
        new_builder,
    )
    liveview.show(history, kubelet, kube_deps)
    kubelet.birth_cry()
    kubelet.start_garbage_collection(ctx)
    return kubelet


def start_kubelet(
    ctx: golang.Context,
    kubelet: kubelet_module.Kubelet,
    server: options.KubeletServer,
    kube_deps: kubelet_dependencies.Dependencies,
) -> None:
    """Start the kubelet's loop and its servers, each in its own thread."""
    kc = server.kubelet_configuration
    # The ports come first, because a kubelet that cannot listen must not start pods.
    if kc.enable_server:
        kubelet.listen_and_serve(
            ctx,
            kc,
            kubelet.tls_config,
            kube_deps.auth,
            kube_deps.flagz,
            kube_deps.tracer_provider,
            kube_deps.debug_pages,
        )
    if kc.read_only_port > 0:
        kubelet.listen_and_serve_read_only(ctx, kc.address, kc.read_only_port, kube_deps.tracer_provider)
    golang.go(kubelet.run, ctx, kubelet.pod_config.updates(), name="kubelet-run")
    golang.go(kubelet.listen_and_serve_pod_resources, ctx, name="pod-resources")
    kubelet.listen_and_serve_debug(ctx, kube_deps.debug_pages)


def _start_healthz_server(ctx: golang.Context, server: options.KubeletServer) -> None:
    """Serve /healthz on its own port, in a thread that ends with ctx."""
    kc = server.kubelet_configuration
    if kc.healthz_port == 0:
        return
    from pkg.apiserver.server import healthz
    from pkg.golang import http

    mux = http.ServeMux()
    healthz.install_handler(mux)

    def listen_and_serve() -> None:
        healthz_server = http.Server(mux, name="healthz-server")
        try:
            healthz_server.listen(kc.healthz_bind_address, kc.healthz_port)
        except OSError as err:
            # As in Go, the kubelet continues without the health endpoint, because it can still do its work.
            klog.error_s(err, "Failed to start healthz server", healthzPort=kc.healthz_port)
            return
        healthz_server.serve(ctx)

    golang.go(wait.until, listen_and_serve, _HEALTHZ_RETRY, ctx, name="healthz-server")


def _notify_systemd() -> None:
    try:
        sdnotify.notify(sdnotify.READY)
    except OSError as err:
        klog.error_s(err, "Failed to notify systemd")
