"""Test which pods are said to be evicted next, on facts alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from kubelet import eviction
from kubelet.eviction import api as evictionapi
from kubelet.eviction.types import SignalObservation
from kubelet.liveview import evictions
from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
Q = resource.parse_quantity
MEMORY = evictionapi.Signal("memory.available")
DISK = evictionapi.Signal("nodefs.available")


def pod(name: str, critical: bool = False) -> v1.Pod:
    spec = v1.PodSpec(priority=2_000_000_000 if critical else 0)
    return v1.Pod(metadata=metav1.ObjectMeta(namespace="ns", name=name), spec=spec)


def ranked(name: str, critical: bool = False) -> eviction.RankedPod:
    found = pod(name, critical)
    return eviction.RankedPod(found, "memory", found.spec.priority or 0, Q("700Mi"), Q("1Gi"))


def threshold(met: bool = False, grace: float = 0.0, since: float | None = None) -> eviction.ThresholdState:
    value = evictionapi.Threshold(MEMORY, evictionapi.ThresholdValue(quantity=Q("100Mi")), grace)
    began = None if since is None else NOW - timedelta(seconds=since)
    return eviction.ThresholdState(value, Q("100Mi"), Q("150Mi"), met, began)


def signal(
    *thresholds: eviction.ThresholdState,
    pods: tuple[eviction.RankedPod, ...] = (ranked("hog"), ranked("other")),
    reclaims: tuple[str, ...] = (),
    name: evictionapi.Signal = MEMORY,
    measured: bool = True,
) -> eviction.SignalPreview:
    seen = SignalObservation(available=Q("50Mi"), capacity=Q("2Gi"), time=NOW) if measured else None
    kind = "memory" if name == MEMORY else "ephemeral-storage"
    return eviction.SignalPreview(name, kind, "MemoryPressure", seen, list(thresholds), list(reclaims), list(pods))


def explained(*signals: eviction.SignalPreview, limits: tuple[eviction.BrokenLimit, ...] = ()) -> dict[str, Any]:
    observed = {"MemoryPressure": NOW - timedelta(seconds=10), "DiskPressure": NOW - timedelta(days=1)}
    preview = eviction.Preview(observed, ["MemoryPressure"], 300.0, list(signals), list(limits))
    # The encoding and decoding give the result the form that a client receives.
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(evictions.explain(preview, NOW)))
    return found


def broken(name: str, critical: bool = False) -> eviction.BrokenLimit:
    return eviction.BrokenLimit(pod(name, critical), "emptydirfs.limit", "Too much. ", critical)


SHORT = "The node is short of memory (memory.available)"
CLEARED = (
    "The node is short of ephemeral-storage (nodefs.available): dead containers and unused images are removed first"
)
GARBAGE = ("dead containers", "unused images")
SENTENCES: dict[str, tuple[dict[str, Any], str]] = {
    "nothing is set": (explained(), evictions.NO_THRESHOLDS),
    "nothing is short": (explained(signal(threshold())), evictions.FINE),
    "not measured": (explained(signal(threshold(), measured=False)), evictions.FINE),
    "short": (explained(signal(threshold(met=True))), f"{SHORT}: ns/hog would be evicted now."),
    "the first is critical": (
        explained(signal(threshold(met=True), pods=(ranked("dns", critical=True), ranked("hog")))),
        f"{SHORT}: ns/hog would be evicted now.",
    ),
    "all are critical": (
        explained(signal(threshold(met=True), pods=(ranked("dns", critical=True),))),
        f"{SHORT}: no pod would be evicted, because all running pods are critical.",
    ),
    "nobody is there": (
        explained(signal(threshold(met=True), pods=())),
        f"{SHORT}: no pod is running that could be evicted.",
    ),
    "something to clear away": (
        explained(signal(threshold(met=True), reclaims=GARBAGE, name=DISK)),
        f"{CLEARED}, and if that is not enough, ns/hog would be evicted now.",
    ),
    "in grace": (
        explained(signal(threshold(met=True, grace=30, since=20))),
        f"{SHORT}, but the grace period of the threshold has not passed yet.",
    ),
    "not seen yet by the manager": (
        explained(signal(threshold(met=True, grace=30))),
        f"{SHORT}, but the grace period of the threshold has not passed yet.",
    ),
    "grace is over": (
        explained(signal(threshold(met=True, grace=30, since=30))),
        f"{SHORT}: ns/hog would be evicted now.",
    ),
    "the hard threshold beside the soft one": (
        explained(signal(threshold(met=True, grace=30, since=1), threshold(met=True))),
        f"{SHORT}: ns/hog would be evicted now.",
    ),
    "what acts comes before what waits": (
        explained(signal(threshold(met=True, grace=9)), signal(threshold(met=True), reclaims=GARBAGE, name=DISK)),
        f"{CLEARED}, and if that is not enough, ns/hog would be evicted now.",
    ),
    "a limit": (
        explained(signal(threshold(met=True)), limits=(broken("a"), broken("dns", critical=True))),
        "ns/a would be evicted now for exceeding its disk limit.",
    ),
    "three limits": (
        explained(limits=(broken("a"), broken("b"), broken("c"))),
        "ns/a, ns/b and ns/c would be evicted now for exceeding their disk limits.",
    ),
    "limit of a critical pod": (
        explained(signal(threshold()), limits=(broken("dns", critical=True),)),
        evictions.FINE,
    ),
}


@pytest.mark.parametrize(("found", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_sentence(found: dict[str, Any], sentence: str) -> None:
    assert found["sentence"] == sentence


def test_figures() -> None:
    found = explained(signal(threshold(met=True, grace=30, since=20), threshold()))

    assert found["conditions"] == [{"type": "MemoryPressure", "not_before": NOW.timestamp() + 290}]
    (memory,) = found["signals"]
    assert (memory["state"], memory["goes_first"]) == ("in grace", "ns/hog")
    assert (memory["available"], memory["capacity"], memory["left"]) == ("50Mi", "2Gi", "50Mi of 2Gi (2%)")
    assert [(each["less_than"], each["until"]) for each in memory["thresholds"]] == [("100Mi", "150Mi")] * 2
    soft, hard = memory["thresholds"]
    assert (soft["since"], soft["acts_at"]) == (NOW.timestamp() - 20, NOW.timestamp() + 10)
    assert (hard["met"], hard["since"], hard["acts_at"]) == (False, None, None)
    assert memory["ranking"][0] == {
        "pod": "ns/hog",
        "why": "within its request, priority 0, usage 700Mi, request 1Gi",
        "priority": 0,
        "usage": "700Mi",
        "request": "1Gi",
        "exceeds_request": False,
        "spared": False,
    }


@pytest.mark.parametrize(
    ("quantity", "text"),
    [
        ("66682688Ki", "63.6Gi"),
        ("264212084Ki", "252Gi"),
        ("100Mi", "100Mi"),
        ("1000Mi", "1Gi"),
        ("999Ki", "999Ki"),
        ("1536Ki", "1.5Mi"),
        ("0Ki", "0"),
        ("-2Gi", "-2Gi"),
        ("4000000", "4M"),  # This is a number of inodes.
        ("123456", "123456"),
        ("7Ei", "7Ei"),
    ],
)
def test_readable(quantity: str, text: str) -> None:
    assert evictions.readable(Q(quantity)) == text
