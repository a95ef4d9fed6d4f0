"""Test the pod-level resources in a pod's status.

Go: none; no Go test calls convertToAPIPodLevelResourcesStatus directly
"""

from __future__ import annotations

import pytest

from kubelet import cm
from kubelet import kubelet_pod_resources as podresources
from kubelet.cm.testing import FakePodContainerManager
from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apimachinery.api.testing import quantities


def new_pod(own: v1.ResourceRequirements | None = None, phase: str = v1.POD_RUNNING) -> v1.Pod:
    requests = v1.ResourceRequirements(requests=quantities(cpu="100m", memory="10Mi"), limits=quantities(memory="20Mi"))
    spec = v1.PodSpec(containers=[v1.Container(name="c", resources=requests)], resources=own)
    return v1.Pod(spec=spec, status=v1.PodStatus(phase=phase))


OWN = v1.ResourceRequirements(requests=quantities(cpu="200m", memory="30Mi"), limits=quantities(cpu="1", memory="1Gi"))
LIMITED = cm.ResourceConfig(memory=64 << 20, cpu_shares=307, cpu_quota=50_000, cpu_period=100_000)
UNLIMITED = cm.ResourceConfig(memory=9223372036854771712, cpu_shares=102, cpu_quota=-1, cpu_period=100_000)
BEFORE = v1.PodStatus(
    phase=v1.POD_RUNNING,
    resources=v1.ResourceRequirements(
        requests=quantities(cpu="7m", memory="7Mi"), limits=quantities(cpu="8m", memory="8Mi")
    ),
)
ENDED = v1.PodStatus(phase=v1.POD_SUCCEEDED, resources=BEFORE.resources)


@pytest.mark.parametrize(
    ("own", "phase", "config", "old", "requests", "limits"),
    [
        (None, "Pending", LIMITED, v1.PodStatus(), {"cpu": "100m", "memory": "10Mi"}, {"memory": "20Mi"}),
        (OWN, "Pending", LIMITED, v1.PodStatus(), {"cpu": "200m", "memory": "30Mi"}, {"cpu": "1", "memory": "1Gi"}),
        (None, "Running", LIMITED, BEFORE, {"cpu": "300m", "memory": "10Mi"}, {"cpu": "500m", "memory": "64Mi"}),
        (OWN, "Running", LIMITED, BEFORE, {"cpu": "300m", "memory": "30Mi"}, {"cpu": "500m", "memory": "64Mi"}),
        (None, "Running", UNLIMITED, BEFORE, {"cpu": "100m", "memory": "10Mi"}, {}),
        (OWN, "Running", None, BEFORE, {"cpu": "200m", "memory": "30Mi"}, {"cpu": "1", "memory": "1Gi"}),
        (None, "Running", None, BEFORE, {"cpu": "100m", "memory": "10Mi"}, {"memory": "20Mi"}),
        (OWN, "Running", OSError("gone"), BEFORE, {"cpu": "7m", "memory": "7Mi"}, {"cpu": "8m", "memory": "8Mi"}),
        (OWN, "Running", OSError("gone"), ENDED, {"cpu": "7m", "memory": "7Mi"}, {"cpu": "8m", "memory": "8Mi"}),
        (None, "Running", OSError("gone"), v1.PodStatus(), {"memory": "10Mi"}, {}),
    ],
)
def test_convert_to_api_pod_level_resources_status(
    own: v1.ResourceRequirements | None,
    phase: str,
    config: cm.ResourceConfig | OSError | None,
    old: v1.PodStatus,
    requests: dict[str, str],
    limits: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cm, "is_cgroup2_unified_mode", lambda: False)
    cgroups = FakePodContainerManager(None if isinstance(config, OSError) else config)
    cgroups.read_err = config if isinstance(config, OSError) else None
    pod = new_pod(own, phase)
    found = podresources.convert_to_api_pod_level_resources_status(cgroups, pod, old)
    assert {name: str(amount) for name, amount in found.requests.items()} == requests
    assert {name: str(amount) for name, amount in found.limits.items()} == limits
    assert pod == new_pod(own, phase), "the pod must not change"


@pytest.mark.parametrize(("written", "shown"), [("200m", "200m"), ("300m", "285m")])
def test_weight_that_covers_the_request(written: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cm, "is_cgroup2_unified_mode", lambda: True)
    shares = cm.milli_cpu_to_shares(resource.must_parse(written).milli_value())
    weight = cm.cpu_shares_to_weight(shares)
    config = cm.ResourceConfig(
        memory=-1, cpu_shares=(weight - 1) * 262142 // 9999 + 3, cpu_quota=-1, cpu_period=100_000
    )
    found = podresources.convert_to_api_pod_level_resources_status(
        FakePodContainerManager(config), new_pod(OWN), BEFORE
    )
    assert str(found.requests["cpu"]) == shown
