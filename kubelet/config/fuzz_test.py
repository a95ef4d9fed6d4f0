"""Test that any content of a manifest becomes usable pods or a fault of that manifest."""

from __future__ import annotations

import copy
import datetime
import json
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubelet import container as kubecontainer
from kubelet import types as kubetypes
from kubelet.config import common, config, objects
from kubelet.config.testing import FakePodStartupSLIObserver
from kubelet.status import status_manager
from kubelet.util import format
from pkg import golang, klog
from pkg.api import pod as podutil
from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util import yaml
from pkg.apis.core.v1.helper import qos
from pkg.client_go.tools.record import testing as recordtesting
from pkg.component_helpers.resource import helpers as resource

# `EXAMPLES` is the number of examples for each test. They differ from run to run, and hypothesis prints the one that
# fails.
EXAMPLES = 150
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
_MAX_PATH = 9

Path = tuple[str | int, ...]

MINIMAL: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {"containers": [{"name": "c", "image": "busybox"}]},
}


@pytest.fixture(autouse=True)
def _chance_is_shared(_no_warnings: None) -> None:
    """Silence hypothesis, which warns when the code under test uses the same source of random numbers."""


def paths(hint: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the path and the type of each field below the type; of lists and maps, yield only the first item."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        hint = args[0]
    elif origin in (types.UnionType, typing.Union):
        yield from paths(next(arg for arg in args if arg is not types.NoneType), path)
        return
    yield path, hint
    if len(path) >= _MAX_PATH:
        return
    if origin is list:
        yield from paths(args[0], (*path, 0))
    elif origin is dict:
        yield from paths(args[1], (*path, "key"))
    elif isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        hints = typing.get_type_hints(hint, include_extras=True)
        for field in msgspec.structs.fields(hint):
            yield from paths(hints[field.name], (*path, field.encode_name))


PATHS = [(path, hint) for path, hint in paths(v1.Pod) if path]

HOSTILE_NUMBERS = st.sampled_from(
    [0, -1, 1, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, 2**63, 2**64, 10**40, 1.5, 1e300, 1e22, -0.0, 65535, 65536]
)
HOSTILE_TEXT = st.one_of(
    st.sampled_from(
        [
            *("", " ", "a", "a/b", "..", "/", "/a", "\0", "\r\n", "yes", "~", "<<", "é", "١", "\U0001f600", "x" * 300),
            *("1e999999999", "0e99999999", "1" + "0" * 400, "1.5Gi", "-5", "100m", "9" * 5000, "0x10", "1_0", "50%"),
            *("0000-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "2024-02-30T00:00:00Z", "2024-01-01T00:00:00"),
            *("1.2.3.4", "::1", "::ffff:1.2.3.4", "1.2.3.4/33", "fe80::1%eth0", "256.1.1.1", "Always", "Never", "File"),
            *(
                "http://[",
                "metadata.labels['a']",
                "metadata.labels['",
                "status.podIP",
                "limits.cpu",
                "$(A)",
                "$$(",
                "*",
            ),
            *(
                "0-3,5",
                "a=b",
                "kernel.shm*",
                "net.ipv4.x",
                "unconfined",
                "localhost/../x",
                "RuntimeDefault",
                "Localhost",
            ),
            *("Recursive", "OnFailure", "In", "Exists", "Gt", "Equal", "NoExecute", "Utf8", "TCP", "SCTP"),
        ]
    ),
    st.text(max_size=20).filter(lambda text: text.isprintable()),
)


def later(hint: Any) -> st.SearchStrategy[Any]:
    """Return the same as `plausible`, for types that contain themselves."""
    return st.deferred(lambda: plausible(hint))


def plausible(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of the type, which are not always valid."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return plausible(args[0])
    if isinstance(hint, typing.NewType):
        return plausible(hint.__supertype__)
    if origin in (types.UnionType, typing.Union):
        return st.one_of([plausible(arg) for arg in args if arg is not types.NoneType])
    if origin is list:
        return st.lists(plausible(args[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(HOSTILE_TEXT, plausible(args[1]), max_size=2)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        hints = typing.get_type_hints(hint, include_extras=True)
        fields = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(hint)}
        return st.fixed_dictionaries({}, optional={name: later(of) for name, of in fields.items()})
    simple: dict[Any, st.SearchStrategy[Any]] = {
        str: HOSTILE_TEXT,
        bool: st.booleans(),
        int: HOSTILE_NUMBERS | st.integers(-3, 70000),
        float: HOSTILE_NUMBERS,
        bytes: st.sampled_from(["", "aGk=", "aGk", "?"]),
        Quantity: HOSTILE_TEXT | HOSTILE_NUMBERS,
        datetime.datetime: HOSTILE_TEXT,
    }
    return simple.get(hint, st.none())


HOSTILE: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | HOSTILE_NUMBERS | HOSTILE_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(HOSTILE_TEXT, inner, max_size=3),
    max_leaves=5,
)


def put(document: Any, path: Path, value: Any) -> None:
    """Set the value at the path, and create whatever is missing on the way."""
    for step, following in zip(path, (*path[1:], None), strict=True):
        last = following is None
        made: Any = value if last else [] if following == 0 else {}
        if isinstance(step, int):
            if not isinstance(document, list):
                return
            if not document:
                document.append(made)
            elif last:
                document[0] = value
            document = document[0]
        else:
            if not isinstance(document, dict):
                return
            if last or step not in document:
                document[step] = made
            document = document[step]


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    document = copy.deepcopy(MINIMAL)
    for _ in range(draw(st.integers(1, 4))):
        path, hint = draw(st.sampled_from(PATHS))
        put(document, path, draw(plausible(hint) if draw(st.integers(0, 3)) else HOSTILE))
    return document


def complete(pod: v1.Pod) -> None:
    common.apply_defaults(pod, "/manifests/\udcff.yaml", True, "node-1")


def decoded(data: bytes) -> list[v1.Pod]:
    """Return the pods that any of the decoders finds in the manifest.

    The decoders may raise nothing but a clear fault.
    """
    pods: list[v1.Pod] = []
    ways: list[Callable[[], list[v1.Pod]]] = [
        lambda: [common.try_decode_single_pod(data, complete)],
        lambda: common.try_decode_pod_list(data, complete),
        lambda: objects.try_decode_documents(data, complete).pods,
    ]
    for decode in ways:
        try:
            pods += decode()
        except common.NotParsedError as err:
            assert str(err)
        except common.InvalidPodError as err:
            # Validation itself must find the fault, instead of failing with an unexpected error.
            assert err.__cause__ is None or type(err.__cause__) is ValueError, err
    return pods


def work_with(pod: v1.Pod) -> None:
    """Treat the pod as the kubelet treats every pod before it starts a container."""
    assert v1.deepcopy(pod) == pod
    assert codec.decode_json(codec.encode_json(pod), v1.Pod) == pod
    for container in [*pod.spec.init_containers, *pod.spec.containers]:
        kubecontainer.hash_container(container)
    kubecontainer.get_pod_full_name(pod)
    format.pod(pod)
    klog.kobj(pod)
    qos.compute_pod_qos(pod)
    resource.pod_requests(pod, resource.PodResourcesOptions())
    resource.pod_limits(pod, resource.PodResourcesOptions())
    kubetypes.is_critical_pod(pod)
    list(podutil.api_object_references(pod))
    status_manager.normalize_status(pod, v1.deepcopy(pod.status))


def merge(pods: list[v1.Pod]) -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel(100)
    storage = config.PodStorage(
        updates,
        config.POD_CONFIG_NOTIFICATION_INCREMENTAL,
        recordtesting.FakeRecorder(100),
        FakePodStartupSLIObserver(),
    )
    for each in (pods, [v1.deepcopy(pod) for pod in pods], []):
        storage.merge(ctx, kubetypes.FILE_SOURCE, kubetypes.PodUpdate(each, kubetypes.SET, kubetypes.FILE_SOURCE))
    told: set[str] = set()
    while (received := updates.try_recv())[2]:
        update = received[0]
        assert update is not None
        told |= {pod.metadata.uid for pod in update.pods}
    assert told == {pod.metadata.uid for pod in pods}
    cancel()


@FUZZ
@given(documents(), st.booleans())
def test_manifest(document: dict[str, Any], as_json: bool) -> None:
    pods = decoded(json.dumps(document).encode() if as_json else yaml.dump(document).encode())
    for pod in pods:
        work_with(pod)
    merge(pods[:1])


@FUZZ
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode(errors="replace")))
def test_bytes(data: bytes) -> None:
    assert decoded(data) == []


_TOKENS = st.sampled_from(
    [
        *(
            "a",
            "1",
            "- ",
            ": ",
            "? ",
            "\n",
            "  ",
            "{",
            "}",
            "[",
            "]",
            ",",
            "'",
            '"',
            "&x ",
            "*x",
            "!!int ",
            "!!binary ",
            "<<",
        ),
        *(
            "#",
            "|",
            ">",
            "%",
            "---",
            "...",
            "\t",
            "~",
            "yes",
            "0x",
            "1e9",
            "\\u",
            "é",
            "\0",
            "kind: Pod",
            "apiVersion: v1",
        ),
    ]
)


@FUZZ
@given(st.lists(_TOKENS, max_size=40).map("".join))
def test_text_like_yaml(text: str) -> None:
    decoded(text.encode())


@FUZZ
@given(st.data())
def test_manifest_with_one_byte_changed(data: st.DataObject) -> None:
    manifest = bytearray(
        yaml.dump(MINIMAL | {"spec": {"containers": [MINIMAL["spec"]["containers"][0]], "priority": 1}}).encode()
    )
    manifest[data.draw(st.integers(0, len(manifest) - 1))] = data.draw(st.integers(0, 255))
    for pod in decoded(bytes(manifest)):
        work_with(pod)
