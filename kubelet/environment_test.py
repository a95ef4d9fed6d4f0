"""Test environment variables from config maps, secrets and files."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from framework import memory
from framework.waiting import wait_until_equal

from kubelet import container as kubecontainer
from kubelet import environment, standalone
from kubelet import types as kubetypes
from kubelet.configmap.testing import FakeConfigMapManager
from kubelet.kubelet_build import new_change_detection
from kubelet.secret.testing import FakeSecretManager
from kubelet.testing import TestKubelet, new_pod
from kubelet.util import env
from kubelet.util.manager import watch_based_manager
from pkg import features
from pkg.api.core import v1
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.api.resource import parse_quantity
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.kubernetes.testing import FakeClientset
from pkg.component_base.featuregate.testing import set_feature_gate_during_test


@pytest.fixture
def test_kubelet(test_kubelet: TestKubelet) -> TestKubelet:
    """Provide a kubelet whose pods may use a config map and a secret."""
    meta = metav1.ObjectMeta(namespace="ns", name="settings")
    test_kubelet.kubelet.config_map_manager = FakeConfigMapManager(
        v1.ConfigMap(metadata=meta, data={"REPLACE": "from-map", "LITERAL": "$(REPLACE)", "2.odd-key": "x"})
    )
    test_kubelet.kubelet.secret_manager = FakeSecretManager(
        v1.Secret(metadata=meta, data={"PASSWORD": b"s3cret", "REPLACE": b"from-secret", "RAW": b"\xff"})
    )
    return test_kubelet


def detect_changes(test: TestKubelet) -> None:
    """Have the kubelet read config maps and secrets from its API server."""
    kubelet = test.kubelet
    assert kubelet.kube_client is not None
    objects = new_change_detection(
        test.ctx, kubelet.kube_client, kubelet.kubelet_configuration, kubelet.clock, kubelet.pod_manager, kubelet
    )
    kubelet.config_map_manager, kubelet.secret_manager = objects.config_map_manager, objects.secret_manager


def variables(
    test: TestKubelet,
    *env: v1.EnvVar,
    sources: list[v1.EnvFromSource] | None = None,
    volumes: kubecontainer.VolumeMap | None = None,
    pod: v1.Pod | None = None,
) -> dict[str, str]:
    pod = pod or new_pod("p")
    container = v1.Container(name="c", env=list(env), env_from=sources or [])
    pod.spec.containers = [container]
    found = test.kubelet.make_environment_variables(test.ctx, pod, container, "10.0.0.5", ["10.0.0.5"], volumes or {})
    assert len({variable.name for variable in found}) == len(found)
    return {variable.name: variable.value for variable in found}


def of_map(key: str, name: str = "settings", optional: bool | None = None) -> v1.EnvVar:
    selector = v1.ConfigMapKeySelector(name=name, key=key, optional=optional)
    return v1.EnvVar(name="MAP", value_from=v1.EnvVarSource(config_map_key_ref=selector))


def of_secret(key: str, name: str = "settings", optional: bool | None = None) -> v1.EnvVar:
    selector = v1.SecretKeySelector(name=name, key=key, optional=optional)
    return v1.EnvVar(name="SECRET", value_from=v1.EnvVarSource(secret_key_ref=selector))


def all_of_map(name: str = "settings", prefix: str = "", optional: bool | None = None) -> v1.EnvFromSource:
    return v1.EnvFromSource(prefix=prefix, config_map_ref=v1.ConfigMapEnvSource(name=name, optional=optional))


def all_of_secret(name: str = "settings", prefix: str = "", optional: bool | None = None) -> v1.EnvFromSource:
    return v1.EnvFromSource(prefix=prefix, secret_ref=v1.SecretEnvSource(name=name, optional=optional))


def test_single_keys(test_kubelet: TestKubelet) -> None:
    assert variables(test_kubelet, of_map("REPLACE"), of_secret("PASSWORD")) == {"MAP": "from-map", "SECRET": "s3cret"}


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        (of_map("k", "missing"), 'configmap "missing" not found'),
        (of_secret("k", "missing"), 'secret "missing" not found'),
        (of_map("k"), "couldn't find key k in ConfigMap ns/settings"),
        (of_secret("k"), "couldn't find key k in Secret ns/settings"),
        (of_secret("RAW"), "value of key RAW in Secret ns/settings is not UTF-8 text"),
    ],
    ids=["config map", "secret", "key of config map", "key of secret", "no text"],
)
def test_missing(test_kubelet: TestKubelet, variable: v1.EnvVar, message: str) -> None:
    with pytest.raises((ValueError, apierrors.StatusError), match=f"^{message}$"):
        variables(test_kubelet, variable)


def test_what_is_missing_and_optional_is_not_set(test_kubelet: TestKubelet) -> None:
    env = (
        of_map("k", "missing", True),
        of_secret("k", "missing", True),
        of_map("k", optional=True),
        of_secret("k", optional=True),
        v1.EnvVar(name="AFTER", value="[$(MAP)]"),
    )
    sources = [all_of_map("missing", optional=True), all_of_secret("missing", optional=True)]
    assert variables(test_kubelet, *env, sources=sources) == {"AFTER": "[$(MAP)]"}
    before = v1.EnvVar(name="MAP", value="stays")
    assert variables(test_kubelet, before, of_map("k", optional=True)) == {"MAP": "stays"}


@pytest.mark.parametrize("source", [all_of_map("missing"), all_of_secret("missing", optional=False)])
def test_missing_objects(test_kubelet: TestKubelet, source: v1.EnvFromSource) -> None:
    with pytest.raises(apierrors.StatusError, match='"missing" not found'):
        variables(test_kubelet, sources=[source])


def test_optional_does_not_mean_that_it_may_not_be_readable(test_kubelet: TestKubelet) -> None:
    refusal = apierrors.new_forbidden("configmaps", "settings", "no relationship found")
    for manager, source in (("config_map_manager", all_of_map), ("secret_manager", all_of_secret)):
        getattr(test_kubelet.kubelet, manager).err = refusal
        with pytest.raises(apierrors.StatusError, match="no relationship found"):
            variables(test_kubelet, sources=[source(optional=True)])


def test_whole_objects(test_kubelet: TestKubelet) -> None:
    del test_kubelet.kubelet.secret_manager.objects["ns", "settings"].data["RAW"]  # type: ignore[union-attr]
    found = variables(
        test_kubelet,
        v1.EnvVar(name="REPLACE", value="own"),
        v1.EnvVar(name="EXPANDED", value="$(p_REPLACE)/$(PASSWORD)"),
        sources=[all_of_map(), all_of_map(prefix="p_"), all_of_secret(), all_of_secret(prefix="1-")],
    )
    assert found == {
        "REPLACE": "own",
        "LITERAL": "$(REPLACE)",  # Only text in the spec itself is expanded.
        "2.odd-key": "x",
        "p_REPLACE": "from-map",
        "p_LITERAL": "$(REPLACE)",
        "p_2.odd-key": "x",
        "PASSWORD": "s3cret",
        "1-PASSWORD": "s3cret",
        "1-REPLACE": "from-secret",
        "EXPANDED": "from-map/s3cret",
    }


def test_the_last_source_counts(test_kubelet: TestKubelet) -> None:
    secrets: Any = test_kubelet.kubelet.secret_manager
    secrets.objects["ns", "settings"].data = {"REPLACE": b"from-secret"}
    assert variables(test_kubelet, sources=[all_of_map(), all_of_secret()])["REPLACE"] == "from-secret"
    assert variables(test_kubelet, sources=[all_of_secret(), all_of_map()])["REPLACE"] == "from-map"


def test_source_that_comes_again_is_taken_once(test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if two sources alternate, the last one wins."""
    secrets: Any = test_kubelet.kubelet.secret_manager
    secrets.objects["ns", "settings"].data = {"REPLACE": b"from-secret"}
    expected = variables(test_kubelet, sources=[all_of_secret(), all_of_map()])
    setting = mock.Mock(side_effect=environment.Variables.set)
    monkeypatch.setattr(environment.Variables, "set", lambda *args: setting(*args))
    assert variables(test_kubelet, sources=[all_of_map(), all_of_secret()] * 50 + [all_of_map()]) == expected
    assert setting.call_count < 10


def test_each_object_is_read_once(test_kubelet: TestKubelet) -> None:
    variables(test_kubelet, of_map("REPLACE"), of_map("LITERAL"), sources=[all_of_map(), all_of_map(prefix="p")])
    manager: Any = test_kubelet.kubelet.config_map_manager
    assert manager.reads == [("ns", "settings")]


def test_nothing_to_read_from(test_kubelet: TestKubelet) -> None:
    test_kubelet.kubelet.config_map_manager = test_kubelet.kubelet.secret_manager = None
    for variable, kind in ((of_map("k", optional=True), "configMap"), (of_secret("k", optional=True), "secret")):
        with pytest.raises(ValueError, match=f"^couldn't get {kind} ns/settings, no kubeClient defined$"):
            variables(test_kubelet, variable)


# ---- Files ----


def of_file(key: str, path: str = "app.env", optional: bool | None = None, volume: str = "config") -> v1.EnvVar:
    selector = v1.FileKeySelector(volume_name=volume, path=path, key=key, optional=optional)
    return v1.EnvVar(name="FILE", value_from=v1.EnvVarSource(file_key_ref=selector))


@pytest.fixture
def volumes(tmp_path: Path) -> kubecontainer.VolumeMap:
    directory = tmp_path / "volume"
    directory.mkdir()
    (directory / "app.env").write_text("# comment\n\nA='1'\nB='$(A)'\n")
    (directory / "broken").write_text("A=1\n")
    (directory / "escape").symlink_to("/../../outside")
    (tmp_path / "outside").write_text("A='outside'\n")
    mounter: Any = SimpleNamespace(get_path=lambda: str(directory))
    pathless: Any = SimpleNamespace(get_path=lambda: "")
    return {
        "config": kubecontainer.VolumeInfo(mounter=mounter),
        "pathless": kubecontainer.VolumeInfo(mounter=pathless),
        "unmounted": kubecontainer.VolumeInfo(),
    }


def test_keys_of_files(test_kubelet: TestKubelet, volumes: kubecontainer.VolumeMap) -> None:
    assert variables(test_kubelet, of_file("A"), volumes=volumes) == {"FILE": "1"}
    assert variables(test_kubelet, of_file("B"), volumes=volumes) == {"FILE": "$(A)"}
    assert variables(test_kubelet, of_file("C", optional=True), volumes=volumes) == {}


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        (of_file("C"), 'environment variable key "C" not found in file ".*/volume/app.env"'),
        (of_file("A", volume="other"), 'cannot find the volume "other" referenced by FileKeyRef'),
        (of_file("A", volume="unmounted"), 'cannot find the volume "unmounted" referenced by FileKeyRef'),
        (
            of_file("A", volume="pathless"),
            'failed to get host path for volume "pathless": path is empty SimpleNamespace',
        ),
        (of_file("A", "missing"), "couldn't parse env file"),
        (of_file("A", "missing", optional=True), "couldn't parse env file"),
        (of_file("A", "broken"), "couldn't parse env file"),
        (of_file("A", "escape"), "couldn't parse env file"),
    ],
)
def test_files_that_do_not_do(
    test_kubelet: TestKubelet, volumes: kubecontainer.VolumeMap, variable: v1.EnvVar, message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        variables(test_kubelet, variable, volumes=volumes)


def test_directory_that_becomes_a_link_leads_to_no_file_of_the_node(
    test_kubelet: TestKubelet, volumes: kubecontainer.VolumeMap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in the pod replaces the directory after the path is resolved, and before the file is read."""
    (tmp_path / "volume/d").mkdir()
    (tmp_path / "volume/d/app.env").write_text("A='inside'\n")
    (tmp_path / "app.env").write_text("A='of the node'\n")
    parse_env = env.parse_env

    def swap(path: str) -> env.EnvFile:
        (tmp_path / "volume/d").rename(tmp_path / "volume/moved")
        (tmp_path / "volume/d").symlink_to("..")
        return parse_env(path)

    monkeypatch.setattr(env, "parse_env", swap)
    assert variables(test_kubelet, of_file("A", "d/app.env"), volumes=volumes) == {"FILE": "inside"}


def test_each_file_is_read_once(
    test_kubelet: TestKubelet, volumes: kubecontainer.VolumeMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse_env = mock.Mock(side_effect=env.parse_env)
    monkeypatch.setattr(env, "parse_env", parse_env)
    given = of_file("A"), of_file("C", optional=True), of_file("B")
    assert variables(test_kubelet, *given, volumes=volumes) == {"FILE": "$(A)"}
    assert parse_env.call_count == 1


def test_files_are_too_large_together(
    test_kubelet: TestKubelet, volumes: kubecontainer.VolumeMap, tmp_path: Path, log: io.StringIO
) -> None:
    for number in range(17):
        (tmp_path / f"volume/{number}").write_text("A='1'\n" + ("#" * 64_000 + "\n") * 16)
    files = [of_file("A", str(number)) for number in range(17)]
    assert variables(test_kubelet, *files[:16], volumes=volumes) == {"FILE": "1"}
    with pytest.raises(ValueError, match=r"^couldn't parse env file$"):
        variables(test_kubelet, *files, volumes=volumes)
    assert "together are larger than 16777216 bytes" in log.getvalue()


def test_files_are_not_read_with_the_gate_off(test_kubelet: TestKubelet, volumes: kubecontainer.VolumeMap) -> None:
    with set_feature_gate_during_test(features.feature_gate, features.ENV_FILES, False):
        assert variables(test_kubelet, of_file("A"), volumes=volumes) == {"FILE": ""}


# ---- Limits of the pod as a whole ----


def amount(of: str) -> v1.EnvVar:
    selector = v1.ResourceFieldSelector(resource=of)
    return v1.EnvVar(name=of, value_from=v1.EnvVarSource(resource_field_ref=selector))


def test_a_container_without_limits_has_those_of_its_pod(test_kubelet: TestKubelet) -> None:
    limits = {"cpu": parse_quantity("3"), "memory": parse_quantity("0")}
    pod = new_pod("p", resources=v1.ResourceRequirements(limits=limits))
    found = variables(test_kubelet, amount("limits.cpu"), amount("limits.memory"), pod=pod)
    assert found["limits.cpu"] == "3"
    assert int(found["limits.memory"]) == test_kubelet.kubelet.cadvisor.machine_info().memory_capacity


# ---- Secrets to pull images with ----


def test_pull_secrets(test_kubelet: TestKubelet) -> None:
    names = ["settings", "", "gone", "lost"]
    pod = new_pod("p", image_pull_secrets=[v1.LocalObjectReference(name=name) for name in names])
    (found,) = test_kubelet.kubelet.get_pull_secrets_for_pod(pod)
    assert found.data["PASSWORD"] == b"s3cret"
    assert test_kubelet.events() == [
        "Warning FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets (gone, lost); "
        "attempting to pull the image may not succeed."
    ]


# ---- Registration of pods, and change detection ----


def test_pods_are_registered_as_long_as_they_run(test_kubelet: TestKubelet) -> None:
    kubelet, pod = test_kubelet.kubelet, new_pod("p")
    pod_status = kubecontainer.PodStatus(id=pod.metadata.uid, ips=["10.0.0.1"])
    managers: list[Any] = [kubelet.secret_manager, kubelet.config_map_manager]
    test_kubelet.workers.terminating = {pod.metadata.uid}
    kubelet.sync_pod(test_kubelet.ctx, kubetypes.SYNC_POD_CREATE, pod, None, pod_status)
    assert [manager.registered for manager in managers] == [[], []], "a terminating pod is not registered"
    test_kubelet.workers.terminating = set()
    kubelet.sync_pod(test_kubelet.ctx, kubetypes.SYNC_POD_CREATE, pod, None, pod_status)
    assert [manager.registered for manager in managers] == [[pod], [pod]]
    kubelet.sync_terminated_pod(test_kubelet.ctx, pod, pod_status)
    assert [manager.registered for manager in managers] == [[], []]


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow a busy machine to take longer to watch an object than a pod should wait for it."""
    monkeypatch.setattr(watch_based_manager, "_SYNC_TIMEOUT", 30.0)


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("strategy", ["Watch", "Cache", "Get"])
def test_strategies(test_kubelet: TestKubelet, strategy: str) -> None:
    kubelet = test_kubelet.kubelet
    kubelet.kubelet_configuration.config_map_and_secret_change_detection_strategy = strategy
    meta = metav1.ObjectMeta(namespace="ns", name="settings")
    client = FakeClientset(v1.ConfigMap(metadata=meta, data={"k": "from map"}))
    client.add(v1.Secret(metadata=meta, data={"k": b"from secret"}))
    kubelet.kube_client = client
    pod = new_pod("p")
    pod.spec.containers = [v1.Container(name="c", env=[of_map("k"), of_secret("k")])]

    detect_changes(test_kubelet)
    assert kubelet.config_map_manager is not None and kubelet.secret_manager is not None
    kubelet.config_map_manager.register_pod(pod)
    kubelet.secret_manager.register_pod(pod)

    assert variables(test_kubelet, of_map("k"), of_secret("k")) == {"MAP": "from map", "SECRET": "from secret"}
    for resource in ("configmaps", "secrets"):
        verbs = {action.verb for action in client.actions(resource=resource)}
        # The watch begins after the list, perhaps only now.
        assert verbs - {"watch"} == ({"list"} if strategy == "Watch" else {"get"})


@pytest.mark.usefixtures("patience")
def test_pod_is_synced_when_what_it_lacked_is_there(test_kubelet: TestKubelet) -> None:
    kubelet, client, pod = test_kubelet.kubelet, FakeClientset(), new_pod("p")
    kubelet.kube_client = client
    pod.spec.containers = [v1.Container(name="c", env=[of_map("k")])]
    kubelet.pod_manager.add_pod(pod)
    detect_changes(test_kubelet)
    assert kubelet.config_map_manager is not None
    kubelet.config_map_manager.register_pod(pod)
    with pytest.raises(apierrors.StatusError, match="not found"):
        kubelet.config_map_manager.get_config_map("ns", "settings")

    client.add(v1.ConfigMap(metadata=metav1.ObjectMeta(namespace="ns", name="settings"), data={"k": "v"}))

    updates = test_kubelet.workers.update_types
    wait_until_equal("updates", updates, [("SYNC", "p")])
    assert test_kubelet.volumes.changes == ["forget uid-p"]


def test_unknown_strategy(test_kubelet: TestKubelet) -> None:
    test_kubelet.kubelet.kubelet_configuration.config_map_and_secret_change_detection_strategy = "Guess"
    test_kubelet.kubelet.kube_client = FakeClientset()
    with pytest.raises(ValueError, match=r"^unknown configmap and secret manager mode: Guess$"):
        detect_changes(test_kubelet)


def test_nothing_is_watched_without_an_api_server(tmp_path: Path) -> None:
    test = TestKubelet(tmp_path)
    assert isinstance(test.kubelet.secret_manager, standalone.SecretManager)
    assert isinstance(test.kubelet.config_map_manager, standalone.ConfigMapManager)
    test.close()


# ---- Environments that are too large for any program ----


LIMIT = kubecontainer.MAX_ARGUMENT_LENGTH
TOTAL = kubecontainer.MAX_ARGUMENTS_LENGTH


def test_variable_that_the_kernel_just_takes(test_kubelet: TestKubelet) -> None:
    value = "x" * (LIMIT - len("LONG=") - 1)
    assert variables(test_kubelet, v1.EnvVar(name="LONG", value=value)) == {"LONG": value}
    with pytest.raises(
        ValueError, match=f'^environment variable "LONG" is too long: {LIMIT + 1} bytes, at most {LIMIT}'
    ):
        variables(test_kubelet, v1.EnvVar(name="LONG", value=value + "x"))


def test_environment_that_the_kernel_just_takes(test_kubelet: TestKubelet) -> None:
    value = "x" * (LIMIT - 100)
    found = [v1.EnvVar(name=f"V{number:03}", value=value) for number in range(TOTAL // LIMIT)]
    assert len(variables(test_kubelet, *found)) == len(found)
    # A variable that is set again counts once.
    assert len(variables(test_kubelet, *found, *found)) == len(found)
    more = [v1.EnvVar(name=f"W{number:03}", value=value) for number in range(2)]
    with pytest.raises(ValueError, match=f'^environment is too large: variable "W00.* {TOTAL} bytes'):
        variables(test_kubelet, *found, *more)


def chain(length: int) -> list[v1.EnvVar]:
    """Return variables, each of which is ten times as long as the one before it."""
    first = v1.EnvVar(name="V0", value="x" * 10)
    return [first, *(v1.EnvVar(name=f"V{n}", value=f"$(V{n - 1})" * 10) for n in range(1, length))]


def expand_each_other() -> None:
    """Expand variables that would take 10 GB."""
    with tempfile.TemporaryDirectory() as directory:
        test = TestKubelet(Path(directory) / "kubelet")
        with pytest.raises(
            ValueError, match=r'^environment variable "V5" is too long: the expanded text has more than'
        ):
            variables(test, *chain(9))
        many = [v1.EnvVar(name=f"W{number}", value="$(V3)" * 10) for number in range(10_000)]
        with pytest.raises(ValueError, match=r"^environment is too large"):
            variables(test, *chain(4), *many)
        test.close()


def take_all_of_a_config_map() -> None:
    """Set the variables of a config map of 1 MiB under 20,000 prefixes."""
    with tempfile.TemporaryDirectory() as directory:
        test = TestKubelet(Path(directory) / "kubelet")
        data = {f"K{number}": "" for number in range(100_000)}
        meta = metav1.ObjectMeta(namespace="ns", name="settings")
        test.kubelet.config_map_manager = FakeConfigMapManager(v1.ConfigMap(metadata=meta, data=data))
        reference = v1.ConfigMapEnvSource(name="settings")
        sources = [v1.EnvFromSource(prefix=f"P{number}", config_map_ref=reference) for number in range(20_000)]
        with pytest.raises(ValueError, match=r"^environment is too large"):
            variables(test, sources=sources)
        test.close()


def expand_arguments() -> None:
    """Expand arguments, a probe's command and a path that would take gigabytes."""
    envs = [kubecontainer.EnvVar("A", "x" * (LIMIT - 10))]
    with pytest.raises(ValueError, match=f"^argument 1 of the command .* more than {LIMIT} bytes"):
        container = v1.Container(args=["fine", "$(A)" * 250_000])
        kubecontainer.expand_container_command_and_args(container, envs)
    with pytest.raises(ValueError, match=f"^argument list of the command .* {TOTAL} bytes at most"):
        kubecontainer.expand_container_command_only_static(["$(A)"] * 400, [v1.EnvVar(name="A", value=envs[0].value)])
    with pytest.raises(ValueError, match="more than 4096 bytes"):
        kubecontainer.expand_container_volume_mounts(v1.VolumeMount(sub_path_expr="$(A)" * 1000), envs)


@pytest.mark.parametrize("work", [expand_each_other, take_all_of_a_config_map, expand_arguments])
def test_environment_without_end_stays_under_96_mib(work: Callable[[], None]) -> None:
    assert memory.peak_growth("kubelet.environment_test", work.__name__) < 96
