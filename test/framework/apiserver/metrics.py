"""Run a small metrics server, which reports the usage of nodes and pods to `kubectl top`.

The metrics server scrapes the kubelets only on request. A rate needs two samples, so the first request waits for the
second sample.

Go: sigs.k8s.io/metrics-server
"""

from __future__ import annotations

import http.client
import math
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from prometheus_client.parser import text_string_to_metric_families

from pkg.apimachinery import clock

from . import errors, proxy
from .interfaces import Object, Request, Store
from .resources import Resource
from .selectors import parse_label_selector

GROUP = "metrics.k8s.io"
_GROUP_VERSION = f"{GROUP}/v1beta1"
_PATH = "/metrics/resource"
_TIMEOUT = 10.0
# At least this many seconds must be between the two samples of a rate.
_MIN_WINDOW = 1.0

# The key is a namespace, a pod and a container. ("", "", "") is the node itself.
_Key = tuple[str, str, str]
_NODE: _Key = ("", "", "")


@dataclass(slots=True)
class _Usage:
    """Hold the processor time since the start in seconds, the memory in bytes, and the time of both in seconds."""

    cpu: float = math.nan
    memory: float = math.nan
    time: float = 0.0
    start: float = 0.0


@dataclass(slots=True)
class _Sample:
    """Hold the usages in one response of a kubelet."""

    scraped: float
    usages: dict[_Key, _Usage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Point:
    """Describe a usage in cores and bytes, the time of the measurement, and the seconds that the rate covers."""

    cores: float
    memory: float
    window: float
    time: float

    @property
    def usage(self) -> Object:
        return {"cpu": f"{round(self.cores * 1e9)}n", "memory": f"{int(self.memory) // 1024}Ki"}


class MetricsServer:
    """Handle requests for the group metrics.k8s.io.

    All methods are thread-safe; concurrent requests wait for each other.
    """

    def __init__(
        self, store: Callable[[], Store], scrape: Callable[[Object], str], clock_: clock.Clock | None = None
    ) -> None:
        self._store = store
        self._scrape = scrape
        self._clock = clock_ or clock.RealClock()
        # The lock guards _samples, which has the last two samples of each node. The two are at least _MIN_WINDOW apart.
        self._lock = threading.Lock()
        self._samples: dict[str, list[_Sample]] = {}

    def __call__(self, request: Request, resource: Resource) -> Object:
        """Return a list or one object. Raise ApiError if the object does not exist."""
        selector = parse_label_selector(request.parameter("labelSelector"))
        found = self._nodes() if resource.plural == "nodes" else self._pods(request.namespace)
        items = [item for item in found if selector.matches(item["metadata"].get("labels") or {})]
        if request.verb == "list":
            kind = {"kind": f"{resource.kind}List", "apiVersion": _GROUP_VERSION}
            return {**kind, "metadata": {}, "items": items}
        for item in items:
            if item["metadata"]["name"] == request.name:
                return {"kind": resource.kind, "apiVersion": _GROUP_VERSION, **item}
        raise errors.not_found(resource.plural, GROUP, request.name)

    def _nodes(self) -> Iterator[Object]:
        for node in self._store().list("nodes"):
            point = self._points(node).get(_NODE)
            if point is not None:
                yield {**_head(node, point), "usage": point.usage}

    def _pods(self, namespace: str) -> Iterator[Object]:
        """Yield the running pods for which the usage of all containers is known."""
        pods = self._store().list("pods", namespace)
        nodes = {node["metadata"]["name"]: node for node in self._store().list("nodes")}
        used = {pod["spec"].get("nodeName", "") for pod in pods} & nodes.keys()
        points = {name: self._points(nodes[name]) for name in used}
        for pod in pods:
            of_node = points.get(pod["spec"].get("nodeName", ""))
            if of_node is None or (pod.get("status") or {}).get("phase") != "Running":
                continue
            meta = pod["metadata"]
            found = {key[2]: point for key, point in of_node.items() if key[:2] == (meta["namespace"], meta["name"])}
            if {container["name"] for container in pod["spec"]["containers"]} <= found.keys():
                containers = [{"name": name, "usage": point.usage} for name, point in sorted(found.items())]
                earliest = min(found.values(), key=lambda point: point.time)
                yield {**_head(pod, earliest), "containers": containers}

    def _points(self, node: Object) -> dict[_Key, _Point]:
        """Return all usages on the node. They are empty if the node's kubelet does not answer."""
        with self._lock:
            samples = self._samples.setdefault(node["metadata"]["name"], [])
            try:
                self._sample(node, samples)
            except (OSError, http.client.HTTPException, errors.ApiError, ValueError):
                return {}
            return dict(_between(*samples))

    def _sample(self, node: Object, samples: list[_Sample]) -> None:
        """Make sure that there are two samples and that the newer one is less than a second old.

        Raise OSError, HTTPException, ApiError or ValueError.
        """
        if not samples:
            samples.append(parse(self._scrape(node), self._now()))
        if (early := samples[-1].scraped + _MIN_WINDOW - self._now()) > 0:
            if len(samples) > 1:
                return  # The newest sample is less than a second old.
            self._clock.sleep(early)
        samples[:] = [samples[-1], parse(self._scrape(node), self._now())]

    def _now(self) -> float:
        return self._clock.now().timestamp()


def kubelet_scraper(tls: ssl.SSLContext) -> Callable[[Object], str]:
    """Return a function that reads the metrics of a node's kubelet.

    The function raises OSError, HTTPException, ApiError or ValueError.
    """

    def scrape(node: Object) -> str:
        connection = http.client.HTTPSConnection(*proxy.kubelet_address(node), timeout=_TIMEOUT, context=tls)
        try:
            connection.request("GET", _PATH)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status != 200:
            raise ValueError(f"kubelet of {node['metadata']['name']} responds with {answer.status}: {text[:200]}")
        return text

    return scrape


def parse(text: str, now: float) -> _Sample:
    """Parse a page of metrics. Raise ValueError if the text is not such a page."""
    sample = _Sample(now)
    for family in text_string_to_metric_families(text):
        for entry in family.samples:
            subject, _, figure = entry.name.partition("_")
            if subject not in ("node", "container"):
                continue
            labels = entry.labels
            key = (labels.get("namespace", ""), labels.get("pod", ""), labels.get("container", ""))
            usage = sample.usages.setdefault(key, _Usage())
            match figure:
                case "cpu_usage_seconds_total":
                    usage.cpu = entry.value
                    usage.time = float(entry.timestamp or now)
                case "memory_working_set_bytes":
                    usage.memory = entry.value
                case "start_time_seconds":
                    usage.start = entry.value
    return sample


def _between(before: _Sample, after: _Sample) -> Iterator[tuple[_Key, _Point]]:
    """Yield the rates of everything that is in both samples. A container that has restarted counts from its start."""
    for key, new in after.usages.items():
        old = before.usages.get(key)
        if old is None or new.start > old.start or new.cpu < old.cpu:
            old = _Usage(cpu=0.0, time=new.start) if new.start else None
        if old is None or new.time <= old.time or math.isnan(new.cpu + new.memory + old.cpu):
            continue
        window = new.time - old.time
        yield key, _Point((new.cpu - old.cpu) / window, new.memory, window, new.time)


def _head(obj: Object, point: _Point) -> Object:
    """Return the fields that all responses have."""
    moment = datetime.fromtimestamp(point.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    meta = {key: obj["metadata"][key] for key in ("name", "namespace", "labels") if key in obj["metadata"]}
    return {
        "metadata": {**meta, "creationTimestamp": moment},
        "timestamp": moment,
        "window": f"{point.window:.3f}s",
    }
