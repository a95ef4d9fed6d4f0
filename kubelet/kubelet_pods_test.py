"""Test the options of containers, and housekeeping."""

from __future__ import annotations

import io
import os
import threading
from ipaddress import ip_address

import pytest
from framework.waiting import wait_for_end_of_threads

from kubelet import cm, kubelet_pods
from kubelet import container as kubecontainer
from kubelet import types as kubetypes
from kubelet.cm.testing import FakePodContainerManager
from kubelet.pod_workers import PodWorkerState, PodWorkerSync, UpdatePodOptions
from kubelet.testing import TestKubelet, new_pod, runtime_pod
from pkg import features, golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.component_base.featuregate.testing import set_feature_gate_during_test
from pkg.golang import testing as golangtesting

# ---- Host names ----


@pytest.mark.parametrize(
    ("name", "spec", "expected"),
    [
        ("test-pod", {}, ("test-pod", "")),
        ("test-pod", {"hostname": "custom"}, ("custom", "")),
        ("test-pod", {"subdomain": "sub"}, ("test-pod", "sub.ns.svc.cluster.test")),
        ("test-pod", {"hostname": "custom", "subdomain": "sub"}, ("custom", "sub.ns.svc.cluster.test")),
        ("test-pod", {"hostname": "a", "subdomain": "b", "hostname_override": "valid.name"}, ("valid.name", "")),
        ("a" * 65, {}, ("a" * 63, "")),
        ("test-pod", {"hostname": "Bad!"}, 'pod Hostname "Bad!" is not a valid DNS label'),
        ("test-pod", {"subdomain": "bad_one"}, 'pod Subdomain "bad_one" is not a valid DNS label'),
        ("test-pod", {"hostname_override": "Bad!"}, 'pod HostnameOverride "Bad!" is not a valid DNS subdomain'),
        ("test-pod", {"hostname": "a" * 64}, "must be no more than 63"),
        ("test-pod", {"hostname_override": "b." * 40 + "b"}, ("b." * 31 + "b", "")),
    ],
)
def test_pod_host_name_and_domain(
    test_kubelet: TestKubelet, name: str, spec: dict[str, str], expected: tuple[str, str] | str
) -> None:
    pod = new_pod(name, **spec)
    if isinstance(expected, tuple):
        assert test_kubelet.kubelet.generate_pod_host_name_and_domain(pod) == expected
    else:
        with pytest.raises(ValueError, match=expected):
            test_kubelet.kubelet.generate_pod_host_name_and_domain(pod)


def test_host_name_override_is_a_feature(test_kubelet: TestKubelet) -> None:
    pod = new_pod("test-pod", hostname="own", subdomain="sub", hostname_override="other")
    with set_feature_gate_during_test(features.feature_gate, features.HOSTNAME_OVERRIDE, False):
        found = test_kubelet.kubelet.generate_pod_host_name_and_domain(pod)
    assert found == ("own", "sub.ns.svc.cluster.test")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("test.pod.hostname", "test.pod.hostname"),
        ("1234567." * 9, ("1234567." * 8)[:-1]),
        ("1234567." * 7 + "123456.1234567.", "1234567." * 7 + "123456"),
        ("1234567." * 7 + "123456-1234567.", "1234567." * 7 + "123456"),
    ],
)
def test_truncate_pod_hostname(given: str, expected: str) -> None:
    assert kubelet_pods.truncate_pod_hostname_if_needed("p", given) == expected


def test_hostname_of_which_nothing_is_left() -> None:
    with pytest.raises(ValueError, match="was invalid"):
        kubelet_pods.truncate_pod_hostname_if_needed("p", "-" * 64)


# ---- The environment ----


def environment(test_kubelet: TestKubelet, pod: v1.Pod, *env: v1.EnvVar) -> dict[str, str]:
    container = v1.Container(name="c", env=list(env))
    container.resources.limits = {"cpu": resource.parse_quantity("2")}
    pod.spec.containers = [container, v1.Container(name="other")]
    found = test_kubelet.kubelet.make_environment_variables(
        test_kubelet.ctx, pod, container, "10.0.0.5", ["fd00::5", "10.0.0.5"], {}
    )
    assert len({variable.name for variable in found}) == len(found)
    return {variable.name: variable.value for variable in found}


def field(name: str, path: str, version: str = "v1") -> v1.EnvVar:
    reference = v1.ObjectFieldSelector(api_version=version, field_path=path)
    return v1.EnvVar(name=name, value_from=v1.EnvVarSource(field_ref=reference))


def amount(name: str, of: str, container: str = "") -> v1.EnvVar:
    reference = v1.ResourceFieldSelector(resource=of, container_name=container)
    return v1.EnvVar(name=name, value_from=v1.EnvVarSource(resource_field_ref=reference))


def test_downward_api(test_kubelet: TestKubelet) -> None:
    pod = new_pod("name", node_name="node", service_account_name="special")
    pod.metadata.labels = {"app": "web"}
    test_kubelet.kubelet.node_ips = [ip_address("192.168.0.1"), ip_address("fd00::1")]
    paths = {
        "metadata.name": "name",
        "metadata.namespace": "ns",
        "metadata.uid": "uid-name",
        "metadata.labels['app']": "web",
        "spec.nodeName": "node",
        "spec.serviceAccountName": "special",
        "status.hostIP": "192.168.0.1",
        "status.hostIPs": "192.168.0.1,fd00::1",
        "status.podIP": "10.0.0.5",
        "status.podIPs": "10.0.0.5,fd00::5",
    }
    variables = [field(f"V{n}", path) for n, path in enumerate(paths)]
    found = environment(test_kubelet, pod, *variables)
    assert dict(zip(paths, found.values(), strict=True)) == paths


def test_resources_in_the_environment(test_kubelet: TestKubelet) -> None:
    found = environment(test_kubelet, new_pod("p"), amount("OWN", "limits.cpu"), amount("NODE", "limits.cpu", "other"))
    cores = test_kubelet.kubelet.cadvisor.machine_info().num_cores
    assert found == {"OWN": "2", "NODE": str(cores)}, "without a limit, the value is the node's"


def test_init_container_that_is_named_has_its_own_limits_alone(test_kubelet: TestKubelet) -> None:
    pod = new_pod("p", init_containers=[v1.Container(name="init")])
    assert environment(test_kubelet, pod, amount("INIT", "limits.cpu", "init")) == {"INIT": "0"}


def test_resources_in_the_environment_take_no_copy_of_the_pod(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of variables may refer to resources, and they make the pod large."""
    copied = []

    def deepcopy(obj: object) -> object:
        copied.append(type(obj))
        return codec.deepcopy(obj)

    monkeypatch.setattr(v1, "deepcopy", deepcopy)
    found = environment(test_kubelet, new_pod("p"), amount("OWN", "limits.cpu"), amount("BY_NAME", "limits.cpu", "c"))
    assert found == {"OWN": "2", "BY_NAME": "2"}
    assert not {v1.Pod, v1.Container} & set(copied)


def test_variables_expand_those_before_them(test_kubelet: TestKubelet) -> None:
    found = environment(
        test_kubelet,
        new_pod("name"),
        v1.EnvVar(name="A", value="a"),
        field("NAME", "metadata.name"),
        v1.EnvVar(name="B", value="$(A)-$(NAME)-$(LATER)-$$(A)"),
        v1.EnvVar(name="LATER", value="x"),
        v1.EnvVar(name="A", value="again $(A)"),
        v1.EnvVar(name="EMPTY"),
    )
    assert found == {"A": "again a", "NAME": "name", "B": "a-name-$(LATER)-$(A)", "LATER": "x", "EMPTY": ""}


def service(name: str, namespace: str, ip: str) -> v1.Service:
    spec = v1.ServiceSpec(cluster_ip=ip, ports=[v1.ServicePort(port=8081, protocol="TCP")])
    return v1.Service(metadata=metav1.ObjectMeta(name=name, namespace=namespace), spec=spec)


@pytest.mark.parametrize("links", [True, False])
def test_services(test_kubelet: TestKubelet, links: bool) -> None:
    services = [
        service("kubernetes", "default", "1.2.3.1"),
        service("test", "ns", "1.2.3.3"),
        service("elsewhere", "other", "1.2.3.4"),
        service("headless", "ns", "None"),
    ]
    test_kubelet.kubelet.service_lister = lambda: services
    pod = new_pod("p", enable_service_links=links)
    found = environment(
        test_kubelet,
        pod,
        v1.EnvVar(name="MASTER", value="$(KUBERNETES_SERVICE_HOST)"),
        v1.EnvVar(name="KUBERNETES_SERVICE_PORT", value="own"),
    )
    assert found["MASTER"] == found["KUBERNETES_SERVICE_HOST"] == "1.2.3.1"
    assert found["KUBERNETES_SERVICE_PORT"] == "own"
    assert ("TEST_SERVICE_HOST" in found) == links
    assert not any(name.startswith(("ELSEWHERE", "HEADLESS")) for name in found)


def test_environments_that_cannot_be_made(test_kubelet: TestKubelet) -> None:
    with pytest.raises(ValueError, match="enableServiceLinks"):
        environment(test_kubelet, new_pod("p", enable_service_links=None))
    with pytest.raises(ValueError, match="not supported"):
        environment(test_kubelet, new_pod("p"), field("A", "status.phase.of.moon"))
    test_kubelet.kubelet.service_has_synced = lambda: False
    with pytest.raises(ValueError, match="services have not yet been read"):
        environment(test_kubelet, new_pod("p"))
    static = new_pod("p")
    static.metadata.annotations[kubetypes.CONFIG_SOURCE_ANNOTATION_KEY] = kubetypes.FILE_SOURCE
    assert environment(test_kubelet, static) == {}, "static pods do not wait for services"


def test_pull_secrets_are_missed_in_an_event_where_there_is_no_api_server(test_kubelet: TestKubelet) -> None:
    pod = new_pod("p", image_pull_secrets=[v1.LocalObjectReference(name="s"), v1.LocalObjectReference(name="")])
    assert test_kubelet.kubelet.get_pull_secrets_for_pod(pod) == []
    (event,) = test_kubelet.events()
    assert event.startswith("Warning FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets (s);")


# ---- Which pods hold resources ----


@pytest.mark.parametrize(
    ("api_phase", "known_phase", "terminated", "terminating", "active"),
    [
        ("Running", None, False, False, True),
        ("Running", None, True, False, False),
        ("Failed", None, False, False, False),
        ("Failed", None, False, True, True),
        ("Running", "Succeeded", False, False, False),
        ("Running", "Succeeded", False, True, True),
        ("Running", "Succeeded", True, True, False),
    ],
)
def test_active_pods(
    test_kubelet: TestKubelet,
    api_phase: str,
    known_phase: str | None,
    terminated: bool,
    terminating: bool,
    active: bool,
) -> None:
    pod = new_pod("p")
    pod.status.phase = api_phase
    test_kubelet.kubelet.pod_manager.add_pod(pod)
    if known_phase is not None:
        test_kubelet.status_manager.set_pod_status(pod, v1.PodStatus(phase=known_phase))
    uid = pod.metadata.uid
    test_kubelet.workers.terminated = {uid} if terminated else set()
    test_kubelet.workers.terminating = {uid} if terminating else set()
    assert test_kubelet.kubelet.get_active_pods() == ([pod] if active else [])


@pytest.mark.parametrize("qos_fails", [True, False])
def test_kill_pod_gives_its_shares_back_after_it_was_killed(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch, qos_fails: bool
) -> None:
    order: list[str] = []

    def update_qos_cgroups() -> None:
        order.append("qos")
        if qos_fails:
            raise OSError("no such cgroup")

    monkeypatch.setattr(test_kubelet.runtime, "kill_pod", lambda *args: order.append("kill"))
    monkeypatch.setattr(test_kubelet.kubelet.container_manager, "update_qos_cgroups", update_qos_cgroups)
    pod = new_pod("p")
    test_kubelet.kubelet.kill_pod(test_kubelet.ctx, pod, runtime_pod(pod).pod, None)
    assert order == ["kill", "qos"]


# ---- handle_pod_cleanups ----


def clean_up(test_kubelet: TestKubelet) -> list[tuple[str, str]]:
    """Run one housekeeping; return the updates of the workers."""
    test_kubelet.workers.updates.clear()
    test_kubelet.housekeep()
    return test_kubelet.workers.update_types()


SYNCING = PodWorkerSync(PodWorkerState.SYNC_POD, has_config=True)


def test_pod_that_workers_know_is_left_to_them(test_kubelet: TestKubelet) -> None:
    pod = new_pod("p")
    test_kubelet.kubelet.pod_manager.add_pod(pod)
    test_kubelet.runtime.pod_list = [runtime_pod(pod)]
    test_kubelet.workers.known = {pod.metadata.uid: SYNCING}
    assert clean_up(test_kubelet) == []


def test_pod_that_runs_and_nobody_wants_is_ended(test_kubelet: TestKubelet) -> None:
    stranger = new_pod("stranger")
    test_kubelet.runtime.pod_list = [runtime_pod(stranger)]
    assert clean_up(test_kubelet) == [("KILL", stranger.metadata.uid)]
    (update,) = test_kubelet.workers.updates
    assert update.kill_pod_options is not None
    assert update.kill_pod_options.pod_termination_grace_period_seconds_override == 1


def test_pod_that_has_ended_since_the_runtime_was_asked_is_no_orphan(test_kubelet: TestKubelet) -> None:
    pod = new_pod("ended")
    test_kubelet.runtime.pod_list = [runtime_pod(pod)]
    test_kubelet.workers.known = {pod.metadata.uid: SYNCING}
    found = test_kubelet.kubelet.find_pods_on_node(test_kubelet.ctx)
    test_kubelet.workers.known.clear()
    test_kubelet.kubelet.handle_pod_cleanups(test_kubelet.ctx, found)
    assert test_kubelet.workers.updates == [] and test_kubelet.workers.synced
    assert clean_up(test_kubelet) == [("KILL", pod.metadata.uid)], "a pod that runs all the same is killed"


@pytest.mark.parametrize("wanted", [False, True])
def test_nothing_counts_as_unused_before_what_runs_is_given_to_workers(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    pod = new_pod("p")
    test_kubelet.runtime.pod_list = [runtime_pod(pod)]
    if wanted:
        test_kubelet.kubelet.pod_manager.add_pod(pod)
    update_pod = test_kubelet.workers.update_pod
    errs: list[Exception] = [RecursionError("maximum recursion depth exceeded")]

    def update(ctx: golang.Context, options: UpdatePodOptions) -> None:
        assert not test_kubelet.workers.synced
        if errs:
            raise errs.pop()
        update_pod(ctx, options)

    monkeypatch.setattr(test_kubelet.workers, "update_pod", update)
    assert clean_up(test_kubelet) == [] and not test_kubelet.workers.synced
    expected = ("CREATE", "p") if wanted else ("KILL", pod.metadata.uid)
    assert clean_up(test_kubelet) == [expected] and test_kubelet.workers.synced


def test_orphan_that_is_terminating_is_not_ended_twice(test_kubelet: TestKubelet) -> None:
    stranger = new_pod("stranger")
    test_kubelet.runtime.pod_list = [runtime_pod(stranger)]
    test_kubelet.workers.known = {stranger.metadata.uid: PodWorkerSync(PodWorkerState.TERMINATING_POD, orphan=True)}
    assert clean_up(test_kubelet) == []


def test_wanted_pod_without_a_worker_is_started_and_not_taken_for_an_orphan(test_kubelet: TestKubelet) -> None:
    pod = new_pod("p")
    pod.metadata.annotations[kubetypes.CONFIG_SOURCE_ANNOTATION_KEY] = kubetypes.FILE_SOURCE
    test_kubelet.kubelet.pod_manager.add_pod(pod)
    test_kubelet.runtime.pod_list = [runtime_pod(pod)]
    assert clean_up(test_kubelet) == [("CREATE", "p")]


def put_cgroups(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch, found: dict[str, cm.CgroupName]
) -> FakePodContainerManager:
    """Let the kubelet find these pod cgroups."""
    cgroups = FakePodContainerManager(found=found)
    monkeypatch.setattr(test_kubelet.kubelet, "cgroups_per_qos", True)
    monkeypatch.setattr(test_kubelet.kubelet.container_manager, "new_pod_container_manager", lambda: cgroups)
    return cgroups


def test_pod_that_is_started_again_keeps_its_cgroup(test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    kubelet, pod = test_kubelet.kubelet, new_pod("p")
    pod.metadata.annotations[kubetypes.CONFIG_SOURCE_ANNOTATION_KEY] = kubetypes.FILE_SOURCE
    kubelet.pod_manager.add_pod(pod)
    names = {uid: cm.CgroupName(("kubepods", uid)) for uid in (pod.metadata.uid, "uid-gone")}
    cgroups = put_cgroups(test_kubelet, monkeypatch, names)
    assert clean_up(test_kubelet) == [("CREATE", "p")]
    assert cgroups.destroyed.recv(30) == (names["uid-gone"], True)
    wait_for_end_of_threads("cgroup-cleanup-")
    assert len(cgroups.destroyed) == 0


def test_slice_of_a_uid_with_an_underscore_is_no_orphan_s(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The systemd driver cannot distinguish the UID from one with a hyphen."""
    kubelet, pod = test_kubelet.kubelet, new_pod("p")
    pod.metadata.uid = types.UID("my_pod")
    pod.metadata.annotations[kubetypes.CONFIG_SOURCE_ANNOTATION_KEY] = kubetypes.FILE_SOURCE
    kubelet.pod_manager.add_pod(pod)
    test_kubelet.runtime.pod_list = [runtime_pod(pod)]
    put_cgroups(test_kubelet, monkeypatch, {"my-pod": cm.CgroupName(("kubepods", "podmy-pod"))})
    clean_up(test_kubelet)
    assert not kubelet.cgroup_cleanups


def test_orphan_that_is_told_to_end_keeps_its_cgroup_until_it_has(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet, stranger = test_kubelet.kubelet, new_pod("stranger")
    test_kubelet.runtime.pod_list = [runtime_pod(stranger)]
    name = cm.CgroupName(("kubepods", stranger.metadata.uid))
    cgroups = put_cgroups(test_kubelet, monkeypatch, {stranger.metadata.uid: name})
    assert clean_up(test_kubelet) == [("KILL", stranger.metadata.uid)]
    assert not kubelet.cgroup_cleanups
    test_kubelet.runtime.pod_list = []
    clean_up(test_kubelet)
    assert cgroups.destroyed.recv(30) == (name, True)
    kubelet.cgroup_cleanups[stranger.metadata.uid].join(30)


def test_orphan_keeps_its_cgroup_until_it_is_known_which_volumes_it_has(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet, name = test_kubelet.kubelet, cm.CgroupName(("kubepods", "uid-gone"))
    cgroups = put_cgroups(test_kubelet, monkeypatch, {"uid-gone": name})
    for reconstructed in (False, True):
        test_kubelet.volumes.reconstructed = reconstructed
        clean_up(test_kubelet)
        kubelet.cgroup_cleanups[types.UID("uid-gone")].join(30)
        assert (len(cgroups.destroyed), cgroups.reduced) == (reconstructed, [])


def test_cgroup_that_cannot_be_removed_has_one_thread_and_others_go(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet = test_kubelet.kubelet
    names = {uid: cm.CgroupName(("kubepods", uid)) for uid in ("hangs", "broken", "goes")}
    cgroups = put_cgroups(test_kubelet, monkeypatch, names)
    ctx, cancel = golang.with_cancel(test_kubelet.ctx)
    began: list[str] = []

    def destroy(name: cm.CgroupName) -> None:
        began.append(name[-1])
        if name == names["hangs"]:
            ctx.wait(60)
        elif name == names["broken"]:
            raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr(cgroups, "destroy", destroy)
    for _ in range(3):
        clean_up(test_kubelet)
        for uid in ("broken", "goes"):
            kubelet.cgroup_cleanups[types.UID(uid)].join(30)
    assert sorted(began) == ["broken"] * 3 + ["goes"] * 3 + ["hangs"]
    cancel()
    kubelet.cgroup_cleanups[types.UID("hangs")].join(30)


def test_housekeeping_without_threads_removes_the_cgroup_later(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet, name = test_kubelet.kubelet, cm.CgroupName(("kubepods", "gone"))
    cgroups = put_cgroups(test_kubelet, monkeypatch, {"gone": name})
    with golangtesting.out_of_threads():
        clean_up(test_kubelet)
    clean_up(test_kubelet)
    assert cgroups.destroyed.recv(30) == (name, True)
    kubelet.cgroup_cleanups[types.UID("gone")].join(30)


def test_housekeeping_does_not_wait_for_the_volumes_of_an_orphaned_cgroup(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet, name = test_kubelet.kubelet, cm.CgroupName(("kubepods", "gone"))
    cgroups = put_cgroups(test_kubelet, monkeypatch, {"gone": name})
    answered = threading.Event()

    def pod_volumes_exist(uid: str) -> bool:
        return not answered.wait(30)

    monkeypatch.setattr(kubelet, "pod_volumes_exist", pod_volumes_exist)
    clean_up(test_kubelet)
    answered.set()
    assert cgroups.destroyed.recv(30) == (name, True)
    kubelet.cgroup_cleanups[types.UID("gone")].join(30)


@pytest.mark.parametrize("running", [True, False], ids=["back", "ended"])
def test_pod_that_comes_back_keeps_its_cgroup(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch, running: bool
) -> None:
    """Housekeeping found the cgroup of a terminated pod; at its removal the pod may have come back."""
    kubelet, pod = test_kubelet.kubelet, new_pod("p")
    kubelet.pod_manager.add_pod(pod)
    test_kubelet.workers.known = {pod.metadata.uid: PodWorkerSync(PodWorkerState.TERMINATED_POD, has_config=True)}
    cgroups = put_cgroups(test_kubelet, monkeypatch, {pod.metadata.uid: cm.CgroupName(("kubepods", pod.metadata.uid))})
    test_kubelet.workers.running = {pod.metadata.uid} if running else set()
    clean_up(test_kubelet)
    kubelet.cgroup_cleanups[pod.metadata.uid].join(30)
    assert len(cgroups.destroyed) == (0 if running else 1)


def test_housekeeping_lists_the_pods_of_a_slow_runtime_once(test_kubelet: TestKubelet) -> None:
    lists: list[bool] = []

    class SlowRuntime:
        def get_pods(self, ctx: golang.Context, all: bool) -> list[kubecontainer.Pod]:
            lists.append(all)
            test_kubelet.clock.step(10)
            return []

    test_kubelet.kubelet.runtime_cache = kubecontainer.RuntimeCacheImpl(SlowRuntime(), 3.0, test_kubelet.clock)
    clean_up(test_kubelet)
    assert lists == [False]


def test_pods_that_were_refused_are_not_started(test_kubelet: TestKubelet) -> None:
    pod = new_pod("p")
    test_kubelet.kubelet.pod_manager.add_pod(pod)
    test_kubelet.kubelet.reject_pod(pod, "NodeAffinity", "not here")
    assert clean_up(test_kubelet) == []


@pytest.mark.parametrize(
    ("phase", "deleted", "running", "known", "expected"),
    [
        ("Failed", True, False, False, [("KILL", "p")]),
        ("Succeeded", True, False, False, [("KILL", "p")]),
        ("Failed", False, False, False, []),
        ("Failed", True, False, True, []),
        # The pod in the runtime is terminated like a pod without a worker.
        ("Failed", True, True, False, [("KILL", "uid-p")]),
        ("Running", True, False, False, [("CREATE", "p")]),
    ],
)
def test_terminal_pods_that_are_being_deleted_are_handed_to_workers(
    test_kubelet: TestKubelet,
    phase: str,
    deleted: bool,
    running: bool,
    known: bool,
    expected: list[tuple[str, str]],
) -> None:
    pod = new_pod("p")
    pod.status.phase = phase
    pod.metadata.deletion_timestamp = test_kubelet.clock.now() if deleted else None
    test_kubelet.kubelet.pod_manager.add_pod(pod)
    test_kubelet.runtime.pod_list = [runtime_pod(pod)] if running else []
    test_kubelet.workers.known = {pod.metadata.uid: SYNCING} if known else {}
    assert clean_up(test_kubelet) == expected


def test_what_pods_left_behind_is_cleared(test_kubelet: TestKubelet) -> None:
    kubelet = test_kubelet.kubelet
    gone, stays = new_pod("gone"), new_pod("stays")
    kubelet.pod_manager.add_pod(stays)
    test_kubelet.workers.known = {stays.metadata.uid: SYNCING}
    for pod in (gone, stays):
        test_kubelet.status_manager.set_pod_status(pod, v1.PodStatus(phase="Running"))
        kubelet.make_pod_data_dirs(pod)
        kubelet.crash_loop_back_off.next(pod.metadata.uid, test_kubelet.clock.now())
    clean_up(test_kubelet)
    wait_for_end_of_threads("orphaned-pod-directories")
    assert test_kubelet.status_manager.get_pod_status(gone.metadata.uid) is None
    assert test_kubelet.status_manager.get_pod_status(stays.metadata.uid) is not None
    assert os.listdir(kubelet.get_pods_dir()) == [stays.metadata.uid]
    test_kubelet.clock.step(3600)
    clean_up(test_kubelet)
    assert kubelet.crash_loop_back_off.get(stays.metadata.uid) == 0


def test_housekeeping_needs_to_see_the_runtime(test_kubelet: TestKubelet) -> None:
    test_kubelet.runtime.err = RuntimeError("runtime is away")
    with pytest.raises(RuntimeError, match="runtime is away"):
        clean_up(test_kubelet)


def test_find_container(test_kubelet: TestKubelet) -> None:
    pod = new_pod("p")
    container = kubecontainer.Container(id=kubecontainer.ContainerID("test", "1"), name="c")
    test_kubelet.runtime.pod_list = [runtime_pod(pod, container)]
    find = test_kubelet.kubelet.find_container
    assert find(test_kubelet.ctx, "p_ns", types.UID(""), "c") is container
    assert find(test_kubelet.ctx, "", pod.metadata.uid, "c") is container
    assert find(test_kubelet.ctx, "p_ns", types.UID(""), "other") is None
    assert find(test_kubelet.ctx, "other_ns", types.UID(""), "c") is None


class _NoRuntimeClasses:
    def lookup_runtime_handler(self, runtime_class_name: str | None) -> str:
        raise LookupError(f'runtimeclass.node.k8s.io "{runtime_class_name}" not found')


def test_unknown_runtime_class_mounts_nothing_read_only_all_the_way_down(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = new_pod("p")
    pod.spec.runtime_class_name = "phantom"
    monkeypatch.setattr(test_kubelet.kubelet, "runtime_class_manager", _NoRuntimeClasses())
    assert not test_kubelet.kubelet.runtime_class_supports_recursive_read_only_mounts(pod)


_HANDLERS = [
    kubecontainer.RuntimeHandler("", supports_recursive_read_only_mounts=True),
    kubecontainer.RuntimeHandler("kata"),
]


@pytest.mark.parametrize(
    ("name", "handlers", "supports", "unknown"),
    [
        ("", _HANDLERS, True, False),
        ("kata", _HANDLERS, False, False),
        ("other", _HANDLERS, False, True),
        ("other", [], False, False),
    ],
    ids=["one that does", "one that does not", "none of the runtime's", "the runtime lists none"],
)
def test_runtime_handler_supports_recursive_read_only_mounts(
    log: io.StringIO, name: str, handlers: list[kubecontainer.RuntimeHandler], supports: bool, unknown: bool
) -> None:
    found = kubelet_pods.runtime_handler_supports_recursive_read_only_mounts(name, handlers)
    assert found is supports
    assert ('"Unknown runtime handler" runtimeHandlerName="other"' in log.getvalue()) is unknown
