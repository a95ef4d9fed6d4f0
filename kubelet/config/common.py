"""Decode pods for the file and URL sources, complete and validate them, and name them after the node.

Go: pkg/kubelet/config/common.go
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from kubelet import types as kubetypes
from pkg import features, klog
from pkg.api import pod as podutil
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util import yaml as utilyaml
from pkg.apimachinery.util.validation import field
from pkg.apis.core import helper, validation
from pkg.apis.core import v1 as k8s_api_v1
from pkg.util import hash

MAX_CONFIG_LENGTH = 10 * 1024 * 1024
# `MAX_OBJECTS` is the largest number of pods and other objects in one manifest file, or in one response of a manifest
# URL.
MAX_OBJECTS = 5000
# `MAX_OBJECT_VALUES` is the largest number of values in one pod or other object, after YAML aliases have been expanded.
# As JSON, this many values take most of the 1.5 MiB that etcd accepts.
MAX_OBJECT_VALUES = 50_000
# `MAX_FAULT_LENGTH` is the largest number of characters in a message about a faulty manifest, `MAX_UNKNOWN_FIELDS` the
# largest number of unknown fields that the kubelet reports for an object.
MAX_FAULT_LENGTH = 4096
MAX_UNKNOWN_FIELDS = 100
# `MAX_UID_LENGTH` is the largest number of characters in a UID that a manifest sets.
MAX_UID_LENGTH = 128
_UID = re.compile("[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

T = TypeVar("T")

# A `DefaultFunc` is a function that completes a decoded pod before its validation.
DefaultFunc = Callable[[v1.Pod], None]
# `UnknownFields` maps a pod's UID to the paths of the manifest's fields that the pod type lacks.
UnknownFields = dict[types.UID, list[str]]


class FaultError(ValueError):
    """Signal that a manifest is faulty. The exception cuts a message that quotes long names or values."""

    def __init__(self, message: str) -> None:
        cut = message[:MAX_FAULT_LENGTH] + "..." if len(message) > MAX_FAULT_LENGTH else message
        super().__init__(cut)


def fault_of(errors: Iterable[Exception]) -> str:
    """Join the errors into one message, and stop once it is longer than a FaultError shows.

    The limit is needed because there may be many errors, and each may quote a long value.
    """
    texts: list[str] = []
    left = MAX_FAULT_LENGTH
    for error in errors:
        if left < 0:
            break
        texts.append(str(error))
        left -= len(texts[-1])
    return ", ".join(texts)


class NotParsedError(FaultError):
    """Signal that the data is not of the requested kind; it may be of another kind."""


class InvalidPodError(FaultError):
    """Signal that the data is a pod that this node cannot use. `errors` holds every fault that validation found."""

    def __init__(self, message: str, errors: list[field.Error] | None = None) -> None:
        super().__init__(message)
        self.errors = errors or []


class StaticPodReferenceError(InvalidPodError):
    """Signal that a static pod refers to an API object.

    Static pods must not do so because they have to start without the API server.
    """


def generate_pod_name(name: str, node_name: str) -> str:
    """Return a pod name that differs from node to node, even if all nodes use the same manifest."""
    return f"{name}-{node_name.lower()}"


def apply_defaults(pod: v1.Pod, source: str, is_file: bool, node_name: str) -> None:
    """Set what the API server would have set for a pod of a manifest: UID, name, namespace, node and status.

    The UID is a hash of the decoded pod and of its origin. It survives restarts of the kubelet and reformatting of the
    manifest, and it changes when the pod changes.
    """
    meta = pod.metadata
    if not meta.uid:
        hasher = hash.FNV128a()
        hash.deep_hash_object(hasher, pod)
        # deep_hash_object resets the hasher, so the origin must follow it.
        if is_file:
            hasher.write(f"host:{node_name}".encode())
            # A file name consists of bytes, which need not be valid text.
            hasher.write(b"file:" + os.fsencode(source))
        else:
            hasher.write(f"url:{source}".encode())
        meta.uid = types.UID(hasher.sum().hex())
        klog.v(5).info_s("Generated UID", pod=klog.kobj(pod), podUID=meta.uid, source=source)

    meta.name = generate_pod_name(meta.name, node_name)
    klog.v(5).info_s("Generated pod name", pod=klog.kobj(pod), podUID=meta.uid, source=source)

    if not meta.namespace:
        meta.namespace = metav1.NAMESPACE_DEFAULT
    klog.v(5).info_s("Set namespace for pod", pod=klog.kobj(pod), source=source)

    pod.spec.node_name = node_name
    meta.annotations[kubetypes.CONFIG_HASH_ANNOTATION_KEY] = meta.uid

    if is_file:
        # The kubelet must not evict a static pod because of node problems: no scheduler could move it to another node.
        helper.add_or_update_toleration_in_pod(
            pod, v1.Toleration(operator=v1.TOLERATION_OP_EXISTS, effect=v1.TAINT_EFFECT_NO_EXECUTE)
        )
    pod.status.phase = v1.POD_PENDING


def try_decode_single_pod(data: bytes, default_fn: DefaultFunc, unknown: UnknownFields | None = None) -> v1.Pod:
    """Decode YAML or JSON that holds one pod, then complete and validate the pod.

    Add the fields that the pod type lacks to `unknown`. Raise NotParsedError if the data is not a pod, and
    InvalidPodError if the pod cannot run on this node.
    """
    return try_decode_pod(_parse(data), default_fn, False, unknown)


def try_decode_pod(
    builtins: Any, default_fn: DefaultFunc, standalone: bool, unknown: UnknownFields | None = None
) -> v1.Pod:
    """Decode a pod from a parsed document, as try_decode_single_pod does from data.

    A pod of a standalone node may refer to objects that its manifests define.
    """
    _check_kind(builtins, "Pod")
    return _decode_pod(builtins, default_fn, standalone, unknown)


def try_decode_pod_list(data: bytes, default_fn: DefaultFunc, unknown: UnknownFields | None = None) -> list[v1.Pod]:
    """Decode YAML or JSON that holds a PodList, then complete and validate its pods.

    Add the fields that the pod type lacks to `unknown`. Raise NotParsedError if the data is not a PodList, and
    InvalidPodError for the first pod that cannot run on this node.
    """
    builtins = _parse(data)
    _check_kind(builtins, "PodList")
    items = builtins.get("items") or []
    if not isinstance(items, list):
        raise NotParsedError(f"expected a list of items, got {type(items).__name__}")
    if len(items) > MAX_OBJECTS:
        raise InvalidPodError(f"the list holds {len(items)} pods, more than the limit of {MAX_OBJECTS}")
    # The limit on values applies to each pod, because a whole list may hold a million values.
    return [_decode_item(item, i, default_fn, unknown) for i, item in enumerate(items)]


def _decode_item(item: Any, index: int, default_fn: DefaultFunc, unknown: UnknownFields | None) -> v1.Pod:
    try:
        return _decode_pod(item, default_fn, False, unknown)
    except NotParsedError as err:
        raise NotParsedError(f"items[{index}]: {err}") from err


def _parse(data: bytes) -> Any:
    try:
        return utilyaml.to_builtins(data)
    except utilyaml.YAMLError as err:
        raise NotParsedError(str(err)) from err


def _decode_pod(builtins: Any, default_fn: DefaultFunc, standalone: bool, unknown: UnknownFields | None) -> v1.Pod:
    fields: list[str] = []
    pod = _prepare(convert(builtins, v1.Pod, fields), default_fn, standalone)
    if unknown is not None and fields:
        unknown[pod.metadata.uid] = fields
    return pod


def _check_kind(builtins: Any, kind: str) -> None:
    got_kind, got_version = get_kind_and_version(builtins)
    if (got_kind, got_version) != (kind, "v1"):
        raise NotParsedError(f"expected {kind} of v1, got {got_kind} of {got_version}")


def get_kind_and_version(builtins: Any) -> tuple[str, str]:
    """Return the kind and the API version of a document. Raise NotParsedError if one of them is missing."""
    if not isinstance(builtins, dict):
        raise NotParsedError(f"expected a map with apiVersion and kind, got {type(builtins).__name__}")
    kind, version = builtins.get("kind"), builtins.get("apiVersion")
    if not kind:
        raise NotParsedError("Object 'Kind' is missing")
    if not version:
        raise NotParsedError("Object 'apiVersion' is missing")
    return str(kind), str(version)


def convert(builtins: Any, type_: type[T], unknown: list[str] | None = None) -> T:
    """Convert a document to an object. Log the fields that the type lacks, and add them to `unknown`.

    Raise NotParsedError if the document does not fit the type.
    """
    _check_values(builtins)
    try:
        obj = codec.convert(builtins, type_)
    except codec.DecodeError as err:
        raise NotParsedError(str(err)) from err
    name = getattr(getattr(obj, "metadata", None), "name", "")[:MAX_FAULT_LENGTH]
    for path in itertools.islice(_unknown_fields(builtins, obj, ""), MAX_UNKNOWN_FIELDS):
        klog.warning_s("Unknown field in manifest, ignoring", name=name, field=path[:MAX_FAULT_LENGTH])
        if unknown is not None:
            unknown.append(path[:MAX_FAULT_LENGTH])
    return obj


def _check_values(builtins: Any) -> None:
    """Raise NotParsedError if the document holds too many values.

    An empty container in a manifest takes three bytes, but a kilobyte of memory once it is decoded.
    """
    pending, left = [builtins], MAX_OBJECT_VALUES
    while pending:
        value = pending.pop()
        children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        left -= len(children)
        if left < 0:
            raise NotParsedError(f"the object holds more than {MAX_OBJECT_VALUES} values")
        pending.extend(children)


def _unknown_fields(builtins: Any, obj: Any, path: str) -> Iterator[str]:
    """Yield the paths of the fields that `builtins` has but the decoded object lacks."""
    match obj:
        case msgspec.Struct():
            names = dict(zip(obj.__struct_encode_fields__, obj.__struct_fields__, strict=True))
            for key, value in builtins.items():
                sub_path = f"{path}.{key}" if path else key
                if key not in names:
                    yield sub_path
                elif value is not None:
                    yield from _unknown_fields(value, getattr(obj, names[key]), sub_path)
        case list():
            for i, item in enumerate(obj):
                yield from _unknown_fields(builtins[i], item, f"{path}[{i}]")


def _prepare(pod: v1.Pod, default_fn: DefaultFunc, standalone: bool) -> v1.Pod:
    """Complete and validate the pod.

    Raise only InvalidPodError, or MemoryError for a pod that may be valid, so that one pod cannot keep other pods from
    running.
    """
    try:
        return _complete_and_validate(pod, default_fn, standalone)
    except (InvalidPodError, MemoryError):
        raise
    except Exception as err:
        # Defaulting and validation receive arbitrary input. An unexpected error is a fault of this pod alone.
        klog.error_s(err, "Unable to validate a pod", name=pod.metadata.name, stacktrace=klog.stacktrace(err))
        raise InvalidPodError(f"invalid pod: {type(err).__name__}: {err}") from err


def _complete_and_validate(pod: v1.Pod, default_fn: DefaultFunc, standalone: bool) -> v1.Pod:
    k8s_api_v1.set_object_defaults_pod(pod)
    # The deprecated field serviceAccount is another name for serviceAccountName, which takes precedence (Go:
    # conversion.go).
    pod.spec.service_account_name = pod.spec.service_account_name or pod.spec.service_account
    pod.spec.service_account = pod.spec.service_account_name
    pod.kind = pod.api_version = ""  # Objects in memory have no kind and no API version, as in Go.
    if not pod.metadata.name:
        raise InvalidPodError("invalid pod: name is needed for the pod")
    _refuse_bad_uid(pod.metadata.uid)
    default_fn(pod)
    options = podutil.get_validation_options_from_pod_spec_and_meta(pod.spec, pod.metadata)
    if errors := validation.validate_pod_create(pod, options):
        raise InvalidPodError("invalid pod: " + fault_of(errors), list(errors))
    _refuse_api_references(pod, standalone)
    return pod


def _refuse_bad_uid(uid: str) -> None:
    """Raise InvalidPodError if the UID cannot be the name of a directory.

    DIVERGES (safer): the kubelet refuses a static pod whose UID cannot be the name of a directory.
    Go: pkg/kubelet/config/common.go, tryDecodeSinglePod: the Go kubelet accepts any UID.
    Why: the kubelet would create and remove the pod's directory wherever a UID such as `../../x` leads.
    Test: common_test.py:test_uid_that_is_no_name_of_a_directory
    """
    if uid and (len(uid) > MAX_UID_LENGTH or not _UID.fullmatch(uid)):
        quoted = uid[:MAX_UID_LENGTH]
        raise InvalidPodError(
            f"invalid pod: metadata.uid: Invalid value: {quoted!r}: must have at most {MAX_UID_LENGTH} characters, all "
            "of them letters, digits, '-', '_' or '.', with a letter or digit first and last"
        )


# `_STANDALONE_REFERENCES` holds the kinds of references that a pod of a standalone node may have, in the words of
# podutil.api_object_references.
_STANDALONE_REFERENCES = frozenset(
    (
        "configmaps",
        "configmaps (via configmap volumes)",
        "configmaps (via projected volumes)",
        "persistentvolumeclaims",
        "secrets",
        "secrets (via projected volumes)",
        "secrets (via secret volumes)",
    )
)


def _refuse_api_references(pod: v1.Pod, standalone: bool) -> None:
    if features.feature_gate.enabled(features.PREVENT_STATIC_POD_API_REFERENCES):
        allowed = _STANDALONE_REFERENCES if standalone else frozenset()
        try:
            refused = [resource for resource in podutil.api_object_references(pod) if resource not in allowed]
        except ValueError as err:
            raise InvalidPodError(str(err)) from err
        if refused:
            raise StaticPodReferenceError(f"static pods may not reference {refused[0]}")
        return
    if any(s.cluster_trust_bundle for v in pod.spec.volumes if v.projected for s in v.projected.sources):
        raise StaticPodReferenceError("static pods may not use ClusterTrustBundle projected volume sources")
    if pod.spec.resource_claims:
        raise StaticPodReferenceError("static pods may not use ResourceClaims")
