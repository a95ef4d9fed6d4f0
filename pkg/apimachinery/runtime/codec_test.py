"""Test encoding, decoding, copying and comparing."""

import datetime
import json
import subprocess
import sys
from typing import Any

import pytest

from pkg.api.core import v1
from pkg.apimachinery.api.resource import parse_quantity
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.util.testing import lines_run

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"app": "web"}, "creationTimestamp": "2026-11-21T03:41:39Z"},
    "spec": {
        "hostIPC": True,
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
        "containers": [
            {
                "name": "c",
                "image": "busybox",
                "resources": {"limits": {"cpu": "500m", "memory": 1024}},
                "livenessProbe": {"httpGet": {"port": "http"}, "terminationGracePeriodSeconds": 0},
            }
        ],
    },
    "status": {"podIPs": [{"ip": "10.0.0.1"}], "containerStatuses": [{"name": "c", "ready": False}]},
}


def decoded() -> v1.Pod:
    return codec.convert(POD, v1.Pod)


def test_fields_have_go_shapes() -> None:
    pod = decoded()
    assert pod.metadata.creation_timestamp == datetime.datetime(2026, 11, 21, 3, 41, 39, tzinfo=datetime.UTC)
    assert pod.spec.host_ipc and not pod.spec.host_network
    assert pod.spec.termination_grace_period_seconds is None
    probe = pod.spec.containers[0].liveness_probe
    assert probe is not None and probe.termination_grace_period_seconds == 0 and probe.http_get is not None
    assert probe.http_get.port == "http"
    assert pod.spec.containers[0].resources.limits["memory"].value() == 1024
    assert pod.status.pod_ips[0].ip == "10.0.0.1"


def test_json_round_trip() -> None:
    pod = decoded()
    assert codec.decode_json(codec.encode_json(pod), v1.Pod) == pod


def test_text_that_cannot_be_sent_is_sent_with_replacements() -> None:
    """Invalid UTF-8, such as a file name in a status message, is sent as U+FFFD."""
    pod = decoded()
    pod.status.message = "no a\udcffb"
    pod.metadata.annotations = {"k\udc80": "v"}
    sent = json.loads(codec.encode_json(pod))
    assert sent["status"]["message"] == "no a\ufffdb" and sent["metadata"]["annotations"] == {"k\ufffd": "v"}
    assert sent["spec"]["volumes"] == POD["spec"]["volumes"]


def test_fields_go_always_writes_are_written() -> None:
    status = codec.to_builtins(decoded())["status"]["containerStatuses"][0]
    assert status["ready"] is False and status["restartCount"] == 0 and "started" not in status


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param({"spec": {"containers": "x"}}, "$.spec.containers", id="text where a list belongs"),
        pytest.param({"spec": {"containers": [{"name": 1}]}}, "$.spec.containers[0].name", id="number"),
        pytest.param(
            {"spec": {"containers": [{"resources": {"limits": {"c": "1x"}}}]}},
            "is not a quantity",
            id="quantity",
        ),
    ],
)
def test_fault_names_its_path(document: dict[str, Any], message: str) -> None:
    with pytest.raises(codec.DecodeError) as err:
        codec.convert(document, v1.Pod)
    assert message in str(err.value)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"spec": {"priority": 2**31}}, "Expected `int` <= 2147483647, got 2147483648 - at `$.spec.priority`"),
        ({"spec": {"priority": -(2**31) - 1}}, "Expected `int` >= -2147483648, got -2147483649 - at `$.spec.priority`"),
        ({"spec": {"terminationGracePeriodSeconds": 2**63}}, "- at `$.spec.terminationGracePeriodSeconds`"),
        ({"spec": {"terminationGracePeriodSeconds": 2**5000}}, "- at `$.spec.terminationGracePeriodSeconds`"),
        ({"metadata": {"generation": -(2**63) - 1}}, "- at `$.metadata.generation`"),
        ({"spec": {"containers": [{"livenessProbe": {"periodSeconds": 3_000_000_000}}]}}, "got 3000000000 - at"),
        ({"spec": {"containers": [{"livenessProbe": {"httpGet": {"port": 2**31}}}]}}, "httpGet.port`"),
        ({"metadata": {"creationTimestamp": "2024-01-01T00:00:00"}}, "got 2024-01-01T00:00:00 - at"),
        ({"metadata": {"creationTimestamp": "2024-01-01 00:00:00Z"}}, "Invalid RFC3339"),
        ({"metadata": {"creationTimestamp": "2024-01-01T00:00:60Z"}}, "Invalid RFC3339"),
        ({"spec": {"containers": [{"resources": {"limits": {"c": "9" * 10_000 + "x"}}}]}}, "is not a quantity"),
    ],
)
def test_out_of_range(document: dict[str, Any], message: str) -> None:
    with pytest.raises(codec.DecodeError) as err:
        codec.convert(document, v1.Pod)
    assert message in str(err.value) and len(str(err.value)) < 400


@pytest.mark.parametrize("value", ["9" * 5000, str(2**63), "1e400", "-1e400", "1.5"])
def test_number_that_is_no_int64(value: str) -> None:
    with pytest.raises(codec.DecodeError, match=r"at `\$\.metadata\.generation`"):
        codec.decode_json(f'{{"metadata": {{"generation": {value}}}}}', v1.Pod)


def test_deep_json_is_an_error() -> None:
    with pytest.raises(codec.DecodeError, match="recursion"):
        codec.decode_json('{"unknown": ' + "[" * 100_000 + "]" * 100_000 + "}", v1.Pod)


_CUT = '{"a":null}'


def _nested(depth: int) -> str:
    return '{"a":' * (depth - 1) + "{}" + "}" * (depth - 1)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("{}", "{}"),
        (_nested(codec.MAX_DEPTH), _nested(codec.MAX_DEPTH)),
        (_nested(100_000), _nested(codec.MAX_DEPTH).replace("{}", _CUT)),
        (f'{{"b":[{_nested(999)},1]}}', f'{{"b":[{_nested(codec.MAX_DEPTH - 2).replace("{}", _CUT)},1]}}'),
        (f'["\\"[\\\\",{"[" * 300}"]"{"]" * 300},"}}"]', f'["\\"[\\\\",{"[" * 199}null{"]" * 199},"}}"]'),
        ("[" * 300, "[" * 300),
        ("[" * 300 + "]" * 301, "[" * 300 + "]" * 301),
    ],
    ids=["flat", "just not too deep", "too deep", "beside others", "text", "no end", "too many ends"],
)
def test_without_depths(data: str, expected: str) -> None:
    assert codec.without_depths(data.encode()).decode() == expected


def test_text_without_an_end_takes_no_time() -> None:
    """An unterminated string is scanned in linear time; with quadratic time this test would take hours."""
    data = b"[" * 300 + b'"' + b'\\"' * (1 << 19)
    assert codec.without_depths(data) is data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (rb'"\ud83d\ude00 \\ud800 \n"', None),
        (rb'"\ud800"', rb'"\ufffd"'),
        (rb'"\udc00\ud800\u0041"', rb'"\ufffd\ufffd\u0041"'),
        (rb'"\ud800\uD83D\uDE00"', rb'"\ufffd\uD83D\uDE00"'),
        (rb'"\\\udbff"', rb'"\\\ufffd"'),
        (b'"a\xffb"', '"a\ufffdb"'.encode()),
    ],
    ids=["text", "alone", "the wrong way round", "before a pair", "after a backslash", "bytes"],
)
def test_with_valid_text(data: bytes, expected: bytes | None) -> None:
    found = codec.with_valid_text(data)
    assert found is data if expected is None else found == expected


def test_times_that_go_reads() -> None:
    times = {"creationTimestamp": "0000-01-01T00:00:00Z", "deletionTimestamp": "9999-12-31T23:00:00-02:00"}
    pod = codec.decode_json(json.dumps({"metadata": times}), v1.Pod)
    assert pod.metadata.creation_timestamp == datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)
    assert pod.metadata.deletion_timestamp == datetime.datetime.max.replace(tzinfo=datetime.UTC)
    assert codec.deepcopy(pod) == pod


def test_base64_may_be_broken_into_lines() -> None:
    assert codec.convert({"data": {"a": "aGVs\r\nbG8=\n"}}, v1.Secret).data == {"a": b"hello"}


def test_managed_fields_are_not_decoded() -> None:
    entry = '{"time": "no time", "fieldsV1": {"f:spec": 99999999999999999999999}}'
    pod = codec.decode_json(f'{{"metadata": {{"name": "a", "managedFields": [{entry}]}}}}', v1.Pod)
    assert pod == v1.Pod(metadata=metav1.ObjectMeta(name="a"))


def test_message_does_not_quote_a_secret() -> None:
    with pytest.raises(codec.DecodeError) as err:
        codec.convert({"data": {"key": "hidden?"}}, v1.Secret)
    assert "hidden" not in str(err.value)


@pytest.mark.parametrize("value", [2**63, 2**70])
def test_deepcopy_of_what_no_decoder_gives(value: int) -> None:
    pod = v1.Pod(spec=v1.PodSpec(termination_grace_period_seconds=value, containers=[v1.Container(name="\ud800")]))
    copy = codec.deepcopy(pod)
    assert copy == pod and copy.spec.containers[0] is not pod.spec.containers[0]


def test_null_means_absent() -> None:
    pod = codec.decode_json(b'{"metadata":{"labels":null,"name":null},"spec":{"containers":null}}', v1.Pod)
    assert pod == v1.Pod()


def test_deepcopy_shares_nothing() -> None:
    pod = decoded()
    copy = v1.deepcopy(pod)
    assert copy == pod
    copy.metadata.labels["app"] = "other"
    copy.spec.containers[0].args.append("x")
    assert pod.metadata.labels == {"app": "web"} and pod.spec.containers[0].args == []


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (v1.Container(name="c"), v1.Container(name="c"), True),
        (v1.PodSpec(security_context=None), v1.PodSpec(security_context=v1.PodSecurityContext()), False),
        ({"a": []}, {"a": None}, True),
        ({"cpu": parse_quantity("1")}, {"cpu": parse_quantity("1000m")}, True),
        (v1.Container(name="c"), v1.Container(name="d"), False),
        ({"a": []}, {}, False),
        ({"a": {"b": {}}}, {"a": {"b": None}}, True),
        ({"a": 1}, {"b": 1}, False),
        ([1], [1, 2], False),
        ([[], 1], [None, 1], True),
        ([], None, True),
        ((), {}, True),
        (0, None, False),
        ("", None, False),
        (v1.Container(args=["x"]), v1.Container(args=[]), False),
        (v1.PodSpec(containers=[v1.Container(name="c")]), v1.PodSpec(containers=[v1.Container(name="d")]), False),
    ],
)
def test_semantic_equal(a: object, b: object, equal: bool) -> None:
    assert codec.semantic_equal(a, b) is equal
    assert codec.semantic_equal(b, a) is equal


def test_semantic_equal_looks_closely_at_differences_alone() -> None:
    containers = 1000
    pod = v1.PodSpec(containers=[v1.Container(name=f"c{i}", args=["x"]) for i in range(containers)])
    other = codec.deepcopy(pod)
    other.containers[-1].args = ["y"]
    assert not codec.semantic_equal(pod, other)
    assert lines_run(lambda: codec.semantic_equal(pod, other)) < 10 * containers


def test_now_has_whole_seconds_in_utc() -> None:
    now = metav1.now()
    assert now.microsecond == 0 and now.tzinfo is datetime.UTC


# The inspection of Nested, as a part of Outer, lasts until the second thread has had its chance to use Outer.
_TWO_THREADS = """
import threading
from typing import Any
import msgspec
from pkg.apimachinery.runtime import codec

met, go_on = threading.Event(), threading.Event()

def slowly() -> type:
    met.set()
    go_on.wait(30)
    return int

class Nested(msgspec.Struct):
    number: "slowly()" = 0

class Outer(msgspec.Struct):
    nested: Nested
    name: str = ""

first = threading.Thread(target=codec.decode_json, args=(b'{"nested": {}}', Outer))
second = threading.Thread(target=codec.convert, args=({"nested": {}, "name": "a"}, Outer))
first.start()
met.wait(30)
second.start()
second.join(0.2)
go_on.set()
first.join()
second.join()
print(codec.convert({"nested": {}, "name": "a"}, Outer).name)
"""


def test_threads_that_meet_a_type_at_the_same_time() -> None:
    """Two threads that use a type for the first time at once do not crash the process.

    The test runs in a separate process because a failure is a crash.
    """
    done = subprocess.run([sys.executable, "-c", _TWO_THREADS], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "a"), done.stderr
