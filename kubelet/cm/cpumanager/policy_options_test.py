"""Test the options of the CPU manager's policies.

Go: pkg/kubelet/cm/cpumanager/policy_options_test.go, policy_none_test.go
"""

from __future__ import annotations

import pytest

from kubelet.cm.cpumanager.policy_none import NonePolicy
from kubelet.cm.cpumanager.policy_options import (
    StaticPolicyOptions,
    new_static_policy_options,
    validate_static_policy_options,
)
from kubelet.cm.cpumanager.state import StateMemory
from kubelet.cm.cpumanager.testing import pod
from kubelet.cm.cpumanager.topology import CPUTopology
from kubelet.cm.topologymanager.testing import FakeTopologyManager
from kubelet.cm.topologymanager.topology_manager import Manager
from pkg import features
from pkg.component_base.featuregate.testing import set_feature_gate_during_test
from pkg.utils import cpuset


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({}, StaticPolicyOptions()),
        ({"full-pcpus-only": "true"}, StaticPolicyOptions(full_physical_cpus_only=True)),
        ({"full-pcpus-only": "false"}, StaticPolicyOptions()),
        ({"distribute-cpus-across-numa": "1"}, StaticPolicyOptions(distribute_cpus_across_numa=True)),
        ({"strict-cpu-reservation": "T"}, StaticPolicyOptions(strict_cpu_reservation=True)),
        ({"prefer-align-cpus-by-uncorecache": "True"}, StaticPolicyOptions(prefer_align_by_uncore_cache=True)),
        ({"align-by-socket": "t"}, StaticPolicyOptions(align_by_socket=True)),
        ({"distribute-cpus-across-cores": "true"}, StaticPolicyOptions(distribute_cpus_across_cores=True)),
        (
            {"full-pcpus-only": "true", "distribute-cpus-across-numa": "true"},
            StaticPolicyOptions(full_physical_cpus_only=True, distribute_cpus_across_numa=True),
        ),
        (
            {"distribute-cpus-across-cores": "true", "full-pcpus-only": "false"},
            StaticPolicyOptions(False, False, False, True),
        ),
    ],
)
def test_options(options: dict[str, str], want: StaticPolicyOptions) -> None:
    with set_feature_gate_during_test(features.feature_gate, features.CPU_MANAGER_POLICY_ALPHA_OPTIONS, True):
        assert new_static_policy_options(options) == want


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"fake": "true"}, 'unknown CPU Manager Policy option: "fake"'),
        (
            {"full-pcpus-only": "maybe"},
            'bad value for option "full-pcpus-only": strconv.ParseBool: parsing "maybe": invalid syntax',
        ),
        (
            {"full-pcpus-only": "true", "distribute-cpus-across-cores": "true"},
            "static policy options full-pcpus-only and distribute-cpus-across-cores can not be used at the same time",
        ),
        (
            {"distribute-cpus-across-numa": "true", "distribute-cpus-across-cores": "true"},
            "static policy options distribute-cpus-across-numa and distribute-cpus-across-cores "
            "can not be used at the same time",
        ),
        (
            {"prefer-align-cpus-by-uncorecache": "true", "distribute-cpus-across-cores": "true"},
            "static policy options prefer-align-cpus-by-uncorecache and distribute-cpus-across-cores "
            "can not be used at the same time",
        ),
        (
            {"prefer-align-cpus-by-uncorecache": "true", "distribute-cpus-across-numa": "true"},
            "static policy options prefer-align-cpus-by-uncorecache and distribute-cpus-across-numa "
            "can not be used at the same time",
        ),
    ],
)
def test_options_that_are_refused(options: dict[str, str], want: str) -> None:
    with (
        set_feature_gate_during_test(features.feature_gate, features.CPU_MANAGER_POLICY_ALPHA_OPTIONS, True),
        pytest.raises(ValueError) as err,
    ):
        new_static_policy_options(options)
    assert str(err.value) == want


@pytest.mark.parametrize(
    ("option", "gate", "level"),
    [
        ("align-by-socket", features.CPU_MANAGER_POLICY_ALPHA_OPTIONS, "Alpha"),
        ("distribute-cpus-across-cores", features.CPU_MANAGER_POLICY_ALPHA_OPTIONS, "Alpha"),
        ("distribute-cpus-across-numa", features.CPU_MANAGER_POLICY_BETA_OPTIONS, "Beta"),
    ],
)
def test_options_of_gates_that_are_off(option: str, gate: str, level: str) -> None:
    with set_feature_gate_during_test(features.feature_gate, gate, False), pytest.raises(ValueError) as err:
        new_static_policy_options({option: "true"})
    assert str(err.value) == f'CPU Manager Policy {level}-level Options not enabled, but option "{option}" provided'


def test_align_by_socket_wants_a_machine_and_a_policy_that_go_with_it() -> None:
    by_socket = StaticPolicyOptions(align_by_socket=True)
    fits = CPUTopology(num_sockets=2, num_numa_nodes=2)
    validate_static_policy_options(by_socket, fits, FakeTopologyManager())
    with pytest.raises(ValueError, match="number of sockets are more than number of NUMA"):
        validate_static_policy_options(by_socket, CPUTopology(num_sockets=2, num_numa_nodes=1), FakeTopologyManager())
    single = Manager([], "single-numa-node", "container", {})
    with pytest.raises(ValueError, match="single-numa-node policy is incompatible with CPUManager align-by-socket"):
        validate_static_policy_options(by_socket, fits, single)
    validate_static_policy_options(StaticPolicyOptions(), fits, single)


def test_none_policy_does_nothing() -> None:
    policy, state, wants = NonePolicy({}), StateMemory(default_cpu_set=cpuset.new(1)), pod("2")
    container = wants.spec.containers[0]
    policy.start(state)
    policy.allocate(state, wants, container)
    policy.remove_container(state, "pod", "c0")
    assert state.get_cpu_assignments() == {}
    assert (policy.get_topology_hints(state, wants, container), policy.get_pod_topology_hints(state, wants)) == ({}, {})
    assert policy.get_allocatable_cpus(state).is_empty()


def test_none_policy_has_no_options() -> None:
    with pytest.raises(ValueError, match=r"None policy: received unsupported options=map\[full-pcpus-only:true\]"):
        NonePolicy({"full-pcpus-only": "true"})
