"""Go: pkg/kubelet/allocation/state/state_checkpoint_test.go"""

from __future__ import annotations

from pathlib import Path

import pytest

from kubelet.allocation import state
from kubelet.allocation.state.state_checkpoint import restore_state
from kubelet.checkpointmanager import CheckpointManager
from pkg.api.core import v1
from pkg.apimachinery.api import resource

_NAME = "allocated_pods_state"
# As a Go kubelet writes it.
_GO = (
    r'{"data":"{\"entries\":{\"pod1\":{\"ContainerResources\":{\"container1\":{\"requests\":'
    r'{\"cpu\":\"1Ki\",\"memory\":\"1Ki\"}}}}}}","checksum":1178570812}'
)


# What a Go kubelet of 1.36 had given to a pod and put in force, files as they are.
_GO_FILES = [
    r'{"data":"{\"entries\":{\"a3be1abe-68b3-46cf-8207-b36990291301\":{\"ContainerResources\":{\"c\":{\"limits\":'
    r'{\"cpu\":\"1\",\"memory\":\"1536Mi\"},\"requests\":{\"cpu\":\"100m\",\"memory\":\"10Mi\"}}},'
    r'\"PodLevelResources\":null}}}","checksum":3685040096}',
    r'{"data":"{\"entries\":{\"a3be1abe-68b3-46cf-8207-b36990291301\":{\"ContainerResources\":{\"c\":{\"limits\":'
    r'{\"memory\":\"1536Mi\"},\"requests\":{\"cpu\":\"100m\",\"memory\":\"10Mi\"}}},\"PodLevelResources\":{\"limits\":'
    r'{\"cpu\":\"1\"},\"requests\":{\"cpu\":\"200m\",\"memory\":\"10Mi\"}}}}}","checksum":1165257362}',
]


def requirements(amount: str) -> v1.ResourceRequirements:
    quantity = resource.must_parse(amount)
    return v1.ResourceRequirements(requests={"cpu": quantity, "memory": quantity})


_SUFFIXES = ["Ki", "Mi", "Gi", "Ti", "Pi", "n", "u", "m", "k", "M", "G", "T", "P", ""]
_FACTORS = ["1", "0.1", "0.03", "10", "100", "512", "1000", "1024", "700", "10000"]
_AMOUNTS = [factor + suffix for factor in _FACTORS for suffix in _SUFFIXES]


@pytest.mark.parametrize("amount", [*_AMOUNTS, "0.1E", "0.03E", "1E", "0.1Ei", "0.03Ei", "1Ei"])
def test_store_state(tmp_path: Path, amount: str) -> None:
    info = state.PodResourceInfo({"container1": requirements(amount)}, requirements(amount))
    first = state.StateCheckpoint(str(tmp_path), _NAME)
    first.set_pod_resource_info("pod1", info)
    assert first.get_pod_resource_info_map() == {"pod1": info}

    second = state.StateCheckpoint(str(tmp_path), _NAME)
    assert second.get_pod_resource_info_map() == {"pod1": info}
    assert second.get_container_resources("pod1", "container1") == info.container_resources["container1"]
    assert second.get_pod_level_resources("pod1") == info.pod_level_resources

    path = tmp_path / _NAME
    path.unlink()
    for same in (first, second):
        same.set_pod_resource_info("pod1", info)
        assert not path.exists(), "nothing changed, nothing is written"
    first.set_pod_resource_info("other", state.PodResourceInfo({"container1": requirements("1")}))
    assert path.exists()


def test_reads_what_go_wrote(tmp_path: Path) -> None:
    (tmp_path / _NAME).write_text(_GO)
    found, data = restore_state(CheckpointManager(str(tmp_path)), _NAME)
    assert found == {"pod1": state.PodResourceInfo({"container1": requirements("1Ki")})}
    assert data.startswith('{"entries":{"pod1"')


@pytest.mark.parametrize("text", _GO_FILES)
def test_file_of_a_go_kubelet_stays_the_same(tmp_path: Path, text: str) -> None:
    path = tmp_path / _NAME
    path.write_text(text)
    checkpoint = state.StateCheckpoint(str(tmp_path), _NAME)
    ((uid, info),) = checkpoint.get_pod_resource_info_map().items()
    checkpoint.set_pod_resource_info("other", info)
    checkpoint.remove_pod("other")
    checkpoint.set_pod_resource_info(uid, info)
    assert path.read_text() == text


def test_writes_what_go_writes(tmp_path: Path) -> None:
    checkpoint = state.StateCheckpoint(str(tmp_path), _NAME)
    limits = {"memory": resource.must_parse("1Gi"), "cpu": resource.must_parse("1500m")}
    both = v1.ResourceRequirements(limits=limits, requests={"cpu": resource.must_parse("0.5")})
    checkpoint.set_container_resources("b", "<c>", both)
    checkpoint.set_pod_level_resources("a", v1.ResourceRequirements(claims=[v1.ResourceClaim(name="gpu")]))
    data = (
        r"{\"entries\":{\"a\":{\"ContainerResources\":{},\"PodLevelResources\":{\"claims\":[{\"name\":\"gpu\"}]}},"
        r"\"b\":{\"ContainerResources\":{\"\\u003cc\\u003e\":{\"limits\":{\"cpu\":\"1500m\",\"memory\":\"1Gi\"},"
        r"\"requests\":{\"cpu\":\"500m\"}}},\"PodLevelResources\":null}}}"
    )
    text = (tmp_path / _NAME).read_text()
    assert text.startswith('{"data":"' + data + '","checksum":')
    assert state.StateCheckpoint(str(tmp_path), _NAME).get_container_resources("b", "<c>") == both


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (_GO.replace("1178570812", "1"), "checkpoint is corrupted"),
        ("{", "Expecting property name"),
        ("[]", "checkpoint is not a JSON object"),
        ('{"data":1,"checksum":1}', "checkpoint has no data text or no checksum number"),
    ],
)
def test_refuses_what_it_cannot_trust(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / _NAME).write_text(text)
    with pytest.raises(ValueError, match=f"could not restore state from checkpoint: {fault}.*delete.*{_NAME}"):
        state.StateCheckpoint(str(tmp_path), _NAME)


def test_forgotten_pods_go_with_the_next_change(tmp_path: Path) -> None:
    checkpoint = state.StateCheckpoint(str(tmp_path), _NAME)
    for uid in ("a", "b", "c"):
        checkpoint.set_container_resources(uid, "c", requirements("1"))
    checkpoint.remove_pod("a")
    checkpoint.remove_orphaned_pods({"c"})
    assert set(checkpoint.get_pod_resource_info_map()) == {"c"}
    assert set(state.StateCheckpoint(str(tmp_path), _NAME).get_pod_resource_info_map()) == {"a", "b", "c"}
    checkpoint.set_container_resources("c", "other", requirements("1"))
    assert set(state.StateCheckpoint(str(tmp_path), _NAME).get_pod_resource_info_map()) == {"c"}


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = state.StateCheckpoint(str(tmp_path), _NAME)

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CheckpointManager, "create_checkpoint", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.set_container_resources("a", "c", requirements("1"))
    assert checkpoint.get_container_resources("a", "c") == requirements("1")
    monkeypatch.undo()
    checkpoint.set_container_resources("a", "c", requirements("1"))
    assert (tmp_path / _NAME).exists(), "what could not be written is written the next time"


def test_noop() -> None:
    noop = state.NoopStateCheckpoint()
    noop.set_container_resources("a", "c", requirements("1"))
    noop.set_pod_level_resources("a", requirements("1"))
    noop.set_pod_resource_info("a", state.PodResourceInfo())
    assert noop.get_pod_resource_info_map() == {}
    assert noop.get_container_resources("a", "c") is None
    assert noop.get_pod_level_resources("a") is None
    assert noop.get_pod_resource_info("a") is None
