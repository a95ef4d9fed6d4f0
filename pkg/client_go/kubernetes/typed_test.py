"""Test the typed client with a small server."""

from __future__ import annotations

import datetime
import socket
import threading
from collections.abc import Callable

import pytest

from pkg import golang
from pkg.api.authentication import v1 as authenticationv1
from pkg.api.certificates import v1 as certificatesv1
from pkg.api.coordination import v1 as coordinationv1
from pkg.api.core import v1
from pkg.apimachinery import types, watch
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.client_go import kubernetes, rest
from pkg.client_go.rest import testing
from pkg.golang.testing import closes

CTX = golang.background()
_WAIT = 30.0

POD = b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"%s","namespace":"n"},"spec":{"newField":{"a":1}}}'
BAD = b'{"metadata":{"name":"bad","namespace":"n"},"spec":{"hostNetwork":"yes"}}'


def clientset(server: testing.Server) -> kubernetes.Clientset:
    return kubernetes.new_for_config(rest.Config(host=server.url, qps=-1))


def test_requests() -> None:
    def answer(request: testing.Request) -> None:
        request.answer(body=b"{}" if "leases" in request.uri else POD % b"a")

    with testing.serve(answer) as server:
        client = clientset(server)
        pods = client.core_v1.pods("n")
        pod = pods.get(CTX, "a", metav1.GetOptions(resource_version="0"))
        pods.update_status(CTX, pod)
        pods.patch(CTX, "a", types.PatchType.STRATEGIC_MERGE, b"{}", metav1.PatchOptions(field_manager="m"), "status")
        pods.delete(CTX, "a", metav1.DeleteOptions(grace_period_seconds=0))
        client.coordination_v1.leases("kube-node-lease").create(CTX, coordinationv1.Lease())
        client.storage_v1.csi_nodes().delete_collection(CTX, None, metav1.ListOptions(field_selector="a=b"))
        client.close()
    assert [(request.verb, request.uri) for request in server.requests] == [
        ("GET", "/api/v1/namespaces/n/pods/a?resourceVersion=0"),
        ("PUT", "/api/v1/namespaces/n/pods/a/status"),
        ("PATCH", "/api/v1/namespaces/n/pods/a/status?fieldManager=m"),
        ("DELETE", "/api/v1/namespaces/n/pods/a"),
        ("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"),
        ("DELETE", "/apis/storage.k8s.io/v1/csinodes?fieldSelector=a%3Db"),
    ]
    assert server.requests[2].headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert codec.decode_json(server.requests[3].body, dict) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
    }
    assert b'"kind":"Pod"' in server.requests[1].body
    assert pod.kind == "" and pod.metadata.name == "a"


def test_list_names_what_cannot_be_decoded() -> None:
    body = b'{"metadata":{"resourceVersion":"7"},"items":[%s,%s,%s]}' % (POD % b"a", BAD, POD % b"b")
    with testing.serve(lambda request: request.answer(body=body)) as server:
        client = clientset(server)
        pods = client.core_v1.pods("").list(CTX)
        client.close()
    assert [pod.metadata.name for pod in pods.items] == ["a", "b"]
    assert [which.key for which in pods.undecodable] == ["n/bad"]
    assert pods.undecodable[0].partial == v1.Pod(metadata=metav1.ObjectMeta(name="bad", namespace="n"))
    assert pods.metadata.resource_version == "7"


def test_managed_fields_of_any_depth_keep_nobody_from_the_objects() -> None:
    """Deeply nested managedFields do not prevent the decoding of objects.

    A user who may change a pod can put them there, and Go's clients do not decode managedFields.
    """
    levels = 100_000
    managed = b'"managedFields":[{"fieldsV1":%s{}%s}],"name"' % (b'{"f:a":' * levels, b"}" * levels)
    deep = (POD % b"a").replace(b'"name"', managed)

    def answer(request: testing.Request) -> None:
        if "watch=true" in request.uri:
            request.begin_stream()
            request.send_chunk(b'{"type":"ADDED","object":%s}\n' % deep)
            request.send_chunk(b"")
        elif request.uri.endswith("/a"):
            request.answer(body=deep)
        else:
            request.answer(body=b'{"items":[%s,%s]}' % (deep, POD % b"b"))

    with testing.serve(answer) as server:
        client = clientset(server)
        pods = client.core_v1.pods("n")
        assert pods.get(CTX, "a").metadata.name == "a"
        assert [pod.metadata.name for pod in pods.list(CTX).items] == ["a", "b"]
        (event,) = pods.watch(CTX).result_chan()
        assert (event.type, event.object.metadata.name) == (watch.ADDED, "a")
        client.close()


@pytest.mark.parametrize("text", [rb"\ud800", b"\xff"])
def test_parameters_that_are_no_text_keep_nobody_from_the_claim(text: bytes) -> None:
    """Invalid UTF-8 in parameters does not prevent the decoding of a claim.

    API servers pass parameters on unchanged, and Go's clients do not decode them.
    """
    opaque = b'"opaque":{"driver":"d","parameters":{"a":"%s"}}' % text
    claim = b'{"metadata":{"name":"c","namespace":"n","uid":"u"},"spec":{"devices":{"config":[{%s}]}}}' % opaque
    with testing.serve(lambda request: request.answer(body=claim)) as server:
        client = clientset(server)
        config = client.resource_v1.resource_claims("n").get(CTX, "c").spec.devices.config[0]
        assert config.opaque is not None and config.opaque.parameters == {"a": "\ufffd"}
        client.close()


UNREADABLE = b"""{
  "metadata": {
    "name": "bad", "namespace": "n", "uid": "u", "resourceVersion": "5", "generation": 99999999999999999999999,
    "labels": {"a": 1}, "deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 7
  },
  "spec": {"hostNetwork": "yes", "nodeName": "node"},
  "status": {"phase": "Running", "startTime": "never", "podIPs": [[[]]]}
}"""


def test_error_holds_what_can_be_decoded() -> None:
    with testing.serve(lambda request: request.answer(body=UNREADABLE)) as server:
        client = clientset(server)
        with pytest.raises(watch.UndecodableError, match=r"generation|hostNetwork|labels") as caught:
            client.core_v1.pods("n").get(CTX, "bad")
        client.close()
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    metadata = metav1.ObjectMeta(name="bad", namespace="n", uid=types.UID("u"), resource_version="5")
    metadata.deletion_timestamp, metadata.deletion_grace_period_seconds = when, 7
    assert caught.value.partial == v1.Pod(
        metadata=metadata, spec=v1.PodSpec(node_name="node"), status=v1.PodStatus(phase="Running")
    )


DEEP = b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize("body", [b"[]", b"1", b'"x"', b"{", b"\xff", pytest.param(DEEP, id="deep")])
def test_answer_of_which_nothing_can_be_decoded(body: bytes) -> None:
    with testing.serve(lambda request: request.answer(body=body)) as server:
        client = clientset(server)
        with pytest.raises(watch.UndecodableError) as caught:
            client.core_v1.pods("n").get(CTX, "bad")
        client.close()
    assert caught.value.partial is None


REFUSAL = b'{"kind":"Status","status":"Failure","reason":"NotFound","message":"no such pod","code":200}'
NOT_A = [
    pytest.param(b"{}", id="nothing"),
    pytest.param(POD % b"b", id="another name"),
    pytest.param(b'{"kind":"Node","metadata":{"name":"a"}}', id="another kind"),
    pytest.param(b'{"kind":"Status","status":"Success"}', id="a success"),
    pytest.param(b'{"spec":{"hostNetwork":"yes"}}', id="no name and not decodable"),
]
_METADATA = metav1.ObjectMeta(name="a", namespace="n")
CALLS: list[Callable[[kubernetes.ResourceClient[v1.Pod]], object]] = [
    lambda pods: pods.get(CTX, "a"),
    lambda pods: pods.create(CTX, v1.Pod(metadata=_METADATA)),
    lambda pods: pods.update(CTX, v1.Pod(metadata=_METADATA)),
    lambda pods: pods.patch(CTX, "a", types.PatchType.MERGE, b"{}"),
]


@pytest.mark.parametrize("call", CALLS, ids=["get", "create", "update", "patch"])
@pytest.mark.parametrize("body", NOT_A)
def test_answer_that_is_not_the_object(
    body: bytes, call: Callable[[kubernetes.ResourceClient[v1.Pod]], object]
) -> None:
    with testing.serve(lambda request: request.answer(body=body)) as server:
        client = clientset(server)
        with pytest.raises(watch.UndecodableError) as caught:
            call(client.core_v1.pods("n"))
        client.close()
    assert caught.value.partial is None


def test_refusal_with_the_code_of_a_success() -> None:
    with testing.serve(lambda request: request.answer(body=REFUSAL)) as server:
        client = clientset(server)
        for call in CALLS:
            with pytest.raises(apierrors.StatusError, match="no such pod"):
                call(client.core_v1.pods("n"))
        with pytest.raises(apierrors.StatusError, match="no such pod"):
            client.core_v1.pods("n").list(CTX)
        client.close()


def test_generated_name() -> None:
    request = certificatesv1.CertificateSigningRequest(metadata=metav1.ObjectMeta(generate_name="csr-"))
    answers = [b'{"metadata":{"name":"csr-1"}}', b"{}"]
    with testing.serve(lambda request: request.answer(body=answers.pop(0))) as server:
        client = clientset(server)
        requests = client.certificates_v1.certificate_signing_requests()
        assert requests.create(CTX, request).metadata.name == "csr-1"
        with pytest.raises(watch.UndecodableError):
            requests.create(CTX, request)
        client.close()


def test_object_without_a_name() -> None:
    """An object without a name can be created, as a review is."""
    with testing.serve(lambda request: request.answer(body=b'{"status":{"authenticated":true}}')) as server:
        client = clientset(server)
        review = client.authentication_v1.token_reviews().create(CTX, authenticationv1.TokenReview())
        client.close()
    assert review.status.authenticated


@pytest.mark.parametrize("body", [b"{}", b'{"kind":"NodeList","items":[]}', b'{"metadata":{"resourceVersion":"7"}}'])
def test_answer_that_is_no_list(body: bytes) -> None:
    with testing.serve(lambda request: request.answer(body=body)) as server:
        client = clientset(server)
        with pytest.raises(codec.DecodeError, match="not a list of pods"):
            client.core_v1.pods("n").list(CTX)
        client.close()


def test_list_of_what_is_nothing() -> None:
    body = b'{"kind":"PodList","items":[{},null,{"kind":"Status","metadata":{"name":"c"}},%s]}' % (POD % b"a")
    with testing.serve(lambda request: request.answer(body=body)) as server:
        client = clientset(server)
        pods = client.core_v1.pods("n").list(CTX)
        client.close()
    assert [pod.metadata.name for pod in pods.items] == ["a"]
    assert len(pods.undecodable) == 3


def test_watch_of_what_is_nothing() -> None:
    lines = [b'{"type":"ADDED","object":{}}', b'{"type":"DELETED","object":%s}' % REFUSAL]

    def answer(request: testing.Request) -> None:
        request.begin_stream()
        request.send_chunk(b"\n".join([*lines, b""]))

    with testing.serve(answer) as server:
        watcher: watch.Interface[v1.Pod] = clientset(server).core_v1.pods("n").watch(CTX)
        events = [watcher.result_chan().recv(_WAIT)[0] for _ in lines]
        watcher.stop()
    assert all(event is not None and isinstance(event.object, watch.Undecodable) for event in events)


def test_list_without_items() -> None:
    with testing.serve(lambda request: request.answer(body=b'{"metadata":{},"items":null}')) as server:
        client = clientset(server)
        assert client.core_v1.nodes().list(CTX).items == []
        client.close()


def test_watch() -> None:
    release = threading.Event()

    def answer(request: testing.Request) -> None:
        request.begin_stream()
        request.send_chunk(b'{"type":"ADDED","object":%s}\n{"type":"ADDED","object":%s}\n' % (POD % b"a", BAD))
        request.send_chunk(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}\n')
        request.send_chunk(b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n')
        release.wait(_WAIT)

    with testing.serve(answer) as server:
        options = metav1.ListOptions(allow_watch_bookmarks=True, timeout_seconds=433, resource_version="5")
        watcher = clientset(server).core_v1.pods("n").watch(CTX, options)
        events = [watcher.result_chan().recv(_WAIT)[0] for _ in range(4)]
        assert closes(watcher.result_chan())
        release.set()
    assert [event and event.type for event in events] == [watch.ADDED, watch.ADDED, watch.BOOKMARK, watch.ERROR]
    assert events[1] is not None and isinstance(events[1].object, watch.Undecodable)
    assert events[3] is not None and isinstance(events[3].object, metav1.Status)
    assert server.requests[0].uri == (
        "/api/v1/namespaces/n/pods?allowWatchBookmarks=true&resourceVersion=5&timeout=7m13s&timeoutSeconds=433&watch=true"
    )


def test_time_outs_as_of_a_bare_rest_client() -> None:
    def answer(request: testing.Request) -> None:
        if "watch=true" in request.uri:
            request.begin_stream()
        else:
            request.answer(200, b'{"items": []}')

    with testing.serve(answer) as server:
        pods = clientset(server).core_v1.pods("").without_time_limits()
        options = metav1.ListOptions(timeout_seconds=433)
        pods.list(CTX, options)
        pods.watch(CTX, options).stop()
    assert [request.uri for request in server.requests] == [
        "/api/v1/pods?timeoutSeconds=433",
        "/api/v1/pods?timeoutSeconds=433&watch=true",
    ]


def test_watch_tells_of_garbage() -> None:
    def answer(request: testing.Request) -> None:
        request.begin_stream()
        request.send_chunk(b"<html>\n")

    with testing.serve(answer) as server:
        watcher: watch.Interface[v1.Node] = clientset(server).core_v1.nodes().watch(CTX)
        event, _ = watcher.result_chan().recv(_WAIT)
        watcher.stop()
    assert event is not None and event.type == watch.ERROR
    assert "unable to decode an event from the watch stream" in str(event.object)


def test_watch_that_gets_no_thread_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = threading.Event()

    def handle(connection: socket.socket, _: int) -> None:
        testing.read_head(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.recv(1)
        closed.set()

    with testing.serve_raw(handle) as url:
        client = kubernetes.new_for_config(rest.Config(host=url))
        with monkeypatch.context() as patched:
            patched.setattr("pkg.apimachinery.watch.streamwatcher.golang.go", threads_but("watch-nodes", golang.go))
            with pytest.raises(golang.ThreadError):
                client.core_v1.nodes().watch(CTX)
        assert closed.wait(_WAIT)


def threads_but(missing: str, start: Callable[..., golang.Thread]) -> Callable[..., golang.Thread]:
    """Return a replacement for golang.go that fails to start a thread of this name."""

    def go(fn: Callable[..., object], *args: object, name: str = "") -> golang.Thread:
        if name == missing:
            raise golang.ThreadError(f"start thread {name!r}")
        return start(fn, *args, name=name)

    return go


def test_watch_ends_with_its_context() -> None:
    release = threading.Event()

    def answer(request: testing.Request) -> None:
        request.begin_stream()
        release.wait(_WAIT)

    with testing.serve(answer) as server:
        ctx, cancel = golang.with_cancel(CTX)
        watcher = clientset(server).core_v1.nodes().watch(ctx)
        cancel()
        assert closes(watcher.result_chan())
        assert not release.is_set()
        release.set()


@pytest.mark.parametrize("name", ["../secrets/s", "a%2fb", "..", "."])
def test_names_that_lead_elsewhere(name: str) -> None:
    client = kubernetes.new_for_config(rest.Config(host="http://127.0.0.1:1"))
    with pytest.raises(ValueError, match="invalid resource name"):
        client.core_v1.pods("n").get(CTX, name)
    with pytest.raises(ValueError, match="invalid namespace"):
        client.core_v1.pods(name).get(CTX, "p")
