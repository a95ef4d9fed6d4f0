"""Test which feature gates the kubelet uses, and the message about a gate without effect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubelet_cmd.kubelet.app import configuration, explain, supported

from pkg import features
from pkg.features import kube_features

_ROOT = Path(__file__).parents[2]
_NOT_ACTED_ON = [(name, reason) for reason, names in supported.GATES_NOT_ACTED_ON for name in names]
_FOR_OTHER_COMPONENTS = """
    APIResponseCompression APIServerIdentity APIServingWithRoutine AllowInsecureKubeletCertificateSigningRequests
    AllowServiceExternalIPs AllowUnsafeMalformedObjectDeletion AuthorizePodWebsocketUpgradeCreatePermission
    CBORServingAndStorage CRDObservedGenerationTracking ClearingNominatedNodeNameAfterBinding
    CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook ClusterTrustBundle
    ConcurrentWatchObjectDecode ConstrainedImpersonation CoordinatedLeaderElection CrossNamespaceVolumeDataSource
    DRAConsumableCapacity DRADeviceBindingConditions DRADeviceTaintRules DRADeviceTaints DRAListTypeAttributes
    DRAPartitionableDevices DRAPrioritizedList DRAResourceClaimDeviceStatus
    DRAResourceClaimGranularStatusAuthorization DRAResourcePoolStatus DRASchedulerFilterTimeout
    DeclarativeValidationBeta DeclarativeValidationTakeover DeploymentReplicaSetTerminatingReplicas
    DetectCacheInconsistency GangScheduling GenericWorkload HPAConfigurableTolerance HPAScaleToZero KMSv1
    ListFromCacheSnapshot ManifestBasedAdmissionControlConfig MaxUnavailableStatefulSet MutablePVNodeAffinity
    MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs MutatingAdmissionPolicy
    NominatedNodeNameForExpectation OpenAPIEnums OpportunisticBatching PersistentVolumeClaimUnusedSinceTime
    PodTopologyLabelsAdmission PortForwardWebsockets RelaxedServiceNameValidation RemoteRequestHeaderUID
    SchedulerAsyncAPICalls SchedulerAsyncPreemption SchedulerPopFromBackoffQ ServiceAccountNodeAudienceRestriction
    ServiceCIDRStatusFieldWiping ShardedListAndWatch SizeBasedListCostEstimate StaleControllerConsistencyDaemonSet
    StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet
    StatefulSetSemanticRevisionComparison StorageCapacityScoring StorageNamespaceIndex StorageVersionAPI
    StorageVersionHash StorageVersionMigrator StructuredAuthenticationConfigurationEgressSelector
    StructuredAuthenticationConfigurationJWKSMetrics TokenRequestServiceAccountUIDValidation
    TopologyAwareWorkloadScheduling TranslateStreamCloseWebsocketRequests UnauthenticatedHTTP2DOSMitigation
    UnknownVersionInteroperabilityProxy VolumeLimitScaling WatchCacheInitializationPostStartHook WatchList
    WindowsCPUAndMemoryAffinity WindowsGracefulNodeShutdown WindowsHostNetwork WorkloadAwarePreemption WorkloadWithJob
"""
# The Go kubelet does not use these gates either.
_OF_OTHERS = _FOR_OTHER_COMPONENTS.split()
# The Go topology manager has no options in these stages, which the gates enable.
_WITHOUT_OPTIONS = ["TopologyManagerPolicyAlphaOptions", "TopologyManagerPolicyBetaOptions"]


@pytest.fixture(autouse=True)
def _untouched_gates() -> Iterator[None]:
    yield
    features.feature_gate.reset()


def _names() -> dict[str, str]:
    """Return the gates by the names of their constants."""
    specs = kube_features.DEFAULT_KUBERNETES_FEATURE_GATES
    return {name: gate for name, gate in vars(kube_features).items() if isinstance(gate, str) and gate in specs}


def _read() -> set[str]:
    """Return the gates that the code reads. Their table and the list of gates without effect do not read any."""
    found: set[str] = set()
    aside = _ROOT / "pkg" / "features", _ROOT / "cmd" / "kubelet" / "app" / "supported.py"
    for path in (path for part in ("cmd", "kubelet", "pkg") for path in (_ROOT / part).rglob("*.py")):
        if not path.name.endswith("_test.py") and not any(path.is_relative_to(each) for each in aside):
            found.update(re.findall(r"\bfeatures\.([A-Z_0-9]+)\b", path.read_text()))
    names = _names()
    return {names[name] for name in found if name in names}


def test_every_gate_is_heeded_or_told_of() -> None:
    specs = kube_features.DEFAULT_KUBERNETES_FEATURE_GATES
    told, read = {name for name, _ in _NOT_ACTED_ON}, _read()
    known = told | read | set(_OF_OTHERS) | set(_WITHOUT_OPTIONS)
    # A locked gate cannot be set.
    assert [name for name, spec in specs.items() if name not in known and not spec.lock_to_default] == []
    # This gate is read where the managers' metrics are defined.
    assert told & read == {features.POD_LEVEL_RESOURCE_MANAGERS}
    assert read.isdisjoint([*_OF_OTHERS, *_WITHOUT_OPTIONS])
    assert told.isdisjoint([*_OF_OTHERS, *_WITHOUT_OPTIONS])
    assert {*told, *_OF_OTHERS, *_WITHOUT_OPTIONS} <= specs.keys()


def _load(*args: str) -> configuration.Loaded:
    loaded = configuration.parse_flags([*args])
    configuration.load(loaded, [*args])
    return loaded


@pytest.mark.parametrize(("name", "reason"), _NOT_ACTED_ON, ids=[name for name, _ in _NOT_ACTED_ON])
def test_gate_that_is_set_in_vain_is_told(name: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec = features.feature_gate.get_all()[name]
    needed = kube_features.DEFAULT_KUBERNETES_FEATURE_GATE_DEPENDENCIES.get(name, ())
    gates = dict.fromkeys(needed, "true") | {name: str(not spec.default).lower()}
    # Turning a gate off also turns off the gates that depend on it.
    dependents = [
        other for other, needs in kube_features.DEFAULT_KUBERNETES_FEATURE_GATE_DEPENDENCIES.items() if name in needs
    ]
    gates |= {other: "false" for other in dependents if spec.default}
    flag = "--feature-gates=" + ",".join(f"{gate}={value}" for gate, value in gates.items())
    loaded = _load(flag)
    rows = [row[1:] for row in explain.explain(loaded) if row.field == "(no effect)"]
    assert rows == [(f"featureGates.{name}: {reason}", "flag --feature-gates")]
    capsys.readouterr()
    supported.check_supported(loaded)
    (line,) = capsys.readouterr().err.splitlines()
    assert f'"Configuration field has no effect" field="featureGates.{name}"' in line
    assert f'source="flag --feature-gates" reason="{reason}"' in line


def test_gates_that_are_set_with_all_of_their_stage_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    supported.check_supported(_load("--feature-gates=AllAlpha=true,GenericWorkload=true,PodsAPI=false"))
    told = re.findall(r'field="featureGates.(\w+)" source="(.*?)"', capsys.readouterr().err)
    assert ("CRIListStreaming", "flag --feature-gates (AllAlpha)") in told
    assert "PodsAPI" not in dict(told)


@pytest.mark.parametrize("gates", ["PodsAPI=false", "WatchListClient=true", "MemoryQoS=true", "GangScheduling=false"])
def test_gate_that_is_set_to_what_is_so_anyway_is_not_told(gates: str, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = _load(f"--feature-gates={gates}")
    capsys.readouterr()
    supported.check_supported(loaded)
    assert capsys.readouterr().err == ""
