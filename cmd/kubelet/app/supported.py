"""Fields of the configuration that this kubelet reads and does not, or not yet, act on.

A user who sets one is told at start. Where a user would believe in a protection that is not there, the
start is refused. An entry goes when the code that acts on its field comes.

Go: no counterpart
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kubelet.apis import config as kubeletconfig
from kubelet.apis.config import scheme
from pkg import klog

from .configuration import DEFAULT, LEGACY_DEFAULT, Loaded


class NotActedOn(NamedTuple):
    """A field without effect."""

    field: str
    reason: str
    # Which values ask for something; any value that was set does if None.
    asks: Callable[[Any], bool] | None = None
    refused: bool = False


_MANAGERS = "there is no cpu, memory or topology manager"
_EVICTION = "nothing is evicted"
_RESERVED = "node allocatable is not enforced on the system's own cgroups"
_SHUTDOWN = "shutdown of the node is not watched"
_NO_AUTH = "requests are not authenticated"


def _is_not_none(value: Any) -> bool:
    return value not in ("none", "None", "")


_NOT_ACTED_ON = (
    NotActedOn(
        "imagePullCredentialsVerificationPolicy",
        "pull credentials of images that are present are not verified",
        lambda value: value in (kubeletconfig.ALWAYS_VERIFY, kubeletconfig.NEVER_VERIFY_ALLOWLISTED_IMAGES),
        refused=True,
    ),
    NotActedOn("protectKernelDefaults", "kernel settings are not checked", bool, refused=True),
    NotActedOn("authentication.x509.clientCAFile", _NO_AUTH, bool),
    NotActedOn("cpuManagerPolicy", _MANAGERS, _is_not_none),
    NotActedOn("cpuManagerPolicyOptions", _MANAGERS, bool),
    NotActedOn("memoryManagerPolicy", _MANAGERS, _is_not_none),
    NotActedOn("reservedMemory", _MANAGERS, bool),
    NotActedOn("topologyManagerPolicy", _MANAGERS, _is_not_none),
    NotActedOn("topologyManagerPolicyOptions", _MANAGERS, bool),
    NotActedOn("qosReserved", "memory is not reserved per QoS class", bool),
    NotActedOn("evictionHard", _EVICTION, bool),
    NotActedOn("evictionSoft", _EVICTION, bool),
    NotActedOn("evictionSoftGracePeriod", _EVICTION, bool),
    NotActedOn("evictionMinimumReclaim", _EVICTION, bool),
    NotActedOn("kernelMemcgNotification", _EVICTION, bool),
    NotActedOn("systemReservedCgroup", _RESERVED, bool),
    NotActedOn("kubeReservedCgroup", _RESERVED, bool),
    NotActedOn("reservedSystemCPUs", _MANAGERS, bool),
    NotActedOn("shutdownGracePeriod", _SHUTDOWN, lambda value: value != "0s"),
    NotActedOn("shutdownGracePeriodByPodPriority", _SHUTDOWN, bool),
    NotActedOn("kubeletCgroups", "processes are not moved between cgroups", bool),
    NotActedOn("systemCgroups", "processes are not moved between cgroups", bool),
    NotActedOn("tracing", "there are no traces", bool),
    NotActedOn("enableContentionProfiling", "there is no lock profile", bool),
    NotActedOn("enableSystemLogQuery", "the node's logs are not served", bool),
    NotActedOn("memoryThrottlingFactor", "memory QoS is not implemented"),
    NotActedOn("memoryReservationPolicy", "memory QoS is not implemented", _is_not_none),
    NotActedOn("volumePluginDir", "FlexVolume plugins are not supported"),
    NotActedOn("logging.options", "log lines go to one stream, unbuffered", bool),
    NotActedOn("hairpinMode", "the container runtime's network plugin decides"),
)


def check_supported(loaded: Loaded) -> None:
    """Log each field that was set in vain. Raises ValueError for those that must not be."""
    refusals = []
    for entry, value in _asked_for(loaded):
        if entry.refused:
            refusals.append(f"{entry.field}: {value}: {entry.reason}")
        else:
            source = loaded.sources.of(entry.field)
            klog.warning_s(
                "Configuration field has no effect", field=entry.field, source=source, reason=entry.reason
            )
    if refusals:
        raise ValueError(f"not supported by this kubelet: {'; '.join(refusals)}")


def _asked_for(loaded: Loaded) -> Iterator[tuple[NotActedOn, Any]]:
    document = scheme.to_versioned(loaded.kubelet_configuration)
    for entry in _NOT_ACTED_ON:
        value: Any = document
        for name in entry.field.split("."):
            value = (value or {}).get(name)
        if _was_set(loaded, entry.field, value) and (entry.asks is None or entry.asks(value)):
            yield entry, value


def _was_set(loaded: Loaded, path: str, value: Any) -> bool:
    sources = [loaded.sources.of(path)]
    if isinstance(value, dict):
        sources += [loaded.sources.of(f"{path}.{name}") for name in value]
    return any(source not in (DEFAULT, LEGACY_DEFAULT) for source in sources)
