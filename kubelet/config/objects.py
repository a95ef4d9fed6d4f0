"""Decode the objects in a manifest directory to which pods refer, on a node without an API server.

DIVERGES (preference: a manifest of another kind): a manifest directory may also hold config maps, secrets, persistent
volume claims and persistent volumes.
Go: pkg/kubelet/config/file.go, (*sourceFile).extractFromFile: the Go kubelet logs that such a file holds no pod.
Why: on a node without an API server a pod could otherwise have no configuration except its own spec.
Test: objects_test.py:test_all_kinds_in_one_file
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from kubelet.config import common
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util import yaml as utilyaml
from pkg.apis.core import validation

APIObject: TypeAlias = v1.ConfigMap | v1.Secret | v1.PersistentVolumeClaim | v1.PersistentVolume

_TYPES: dict[str, type[APIObject]] = {
    "ConfigMap": v1.ConfigMap,
    "Secret": v1.Secret,
    "PersistentVolumeClaim": v1.PersistentVolumeClaim,
    "PersistentVolume": v1.PersistentVolume,
}

_NO_LINE_BREAKS = str.maketrans("", "", "\r\n")


class ObjectStore(Protocol):
    """Define the receiver of the objects. The thread of the source calls it."""

    def replace(self, objects: Sequence[APIObject]) -> None:
        """Replace all objects. The source and the store share the objects, so neither may modify them afterwards."""
        ...


class InvalidObjectError(common.FaultError):
    """Signal that a document cannot be used; the message names the object and the field."""


@dataclass(slots=True)
class Documents:
    """Hold the contents of a file and its faults. A faulty document does not affect the others."""

    pods: list[v1.Pod] = field(default_factory=list)
    objects: list[APIObject] = field(default_factory=list)
    faults: list[ValueError] = field(default_factory=list)
    # `unknown_fields` holds the fields of the pods' documents that the pod type lacks.
    unknown_fields: common.UnknownFields = field(default_factory=dict)


def try_decode_documents(data: bytes, default_fn: common.DefaultFunc) -> Documents:
    """Decode YAML with any number of documents, or JSON with one, then complete and validate all of them.

    Raise common.NotParsedError if the data is neither YAML nor JSON, or if it holds no document. Raise MemoryError if
    memory runs out.
    """
    try:
        found = utilyaml.documents(data)
    except utilyaml.YAMLError as err:
        raise common.NotParsedError(str(err)) from err
    if not found:
        raise common.NotParsedError("the file holds no document")
    if len(found) > common.MAX_OBJECTS:
        message = f"the file holds {len(found)} documents, more than the limit of {common.MAX_OBJECTS}"
        raise common.NotParsedError(message)
    documents = Documents()
    for number, builtins in enumerate(found, 1):
        try:
            obj = _decode(builtins, default_fn, documents.unknown_fields)
        except ValueError as err:
            # The error must not keep its frames: they hold the documents, which hold the error, and only garbage
            # collection could free this cycle.
            fault = golang.without_frames(err)
            documents.faults.append(fault if len(found) == 1 else InvalidObjectError(f"document {number}: {err}"))
            continue
        except MemoryError:
            raise  # A lack of memory is not a fault of the document.
        except Exception as err:
            # Any error that one document causes in the decoder is a fault of that document alone.
            klog.error_s(err, "Unable to decode a document", document=number, stacktrace=klog.stacktrace(err))
            documents.faults.append(InvalidObjectError(f"document {number}: {type(err).__name__}: {err}"))
            continue
        if isinstance(obj, v1.Pod):
            documents.pods.append(obj)
        else:
            documents.objects.append(obj)
    return documents


def _decode(builtins: Any, default_fn: common.DefaultFunc, unknown: common.UnknownFields) -> v1.Pod | APIObject:
    """Decode one document. Raise ValueError if it cannot be used."""
    kind, version = common.get_kind_and_version(builtins)
    if kind == "Pod":
        return common.try_decode_pod(builtins, default_fn, True, unknown)
    if version != "v1" or kind not in _TYPES:
        kinds = ", ".join(["Pod", *_TYPES])
        raise common.NotParsedError(f"expected one of {kinds} of v1, got {kind} of {version}")
    try:
        return _decode_object(builtins, kind)
    except ValueError as err:
        raise InvalidObjectError(f"invalid {kind} {_name(builtins)}: {err}") from err


def _name(builtins: Mapping[str, Any]) -> str:
    metadata = builtins.get("metadata")
    return str(metadata.get("name")) if isinstance(metadata, dict) and metadata.get("name") else "without a name"


def _decode_object(builtins: dict[str, Any], kind: str) -> APIObject:
    readers = {
        "data": _base64 if kind == "Secret" else _text,
        "binaryData": _base64,
        "stringData": _text,
    }
    data = {name: _read_data(builtins[name], name, read) for name, read in readers.items() if name in builtins}
    obj = common.convert(builtins | data, _TYPES[kind])
    obj.api_version = obj.kind = ""  # Objects in memory have no kind and no API version, as in Go.
    if not isinstance(obj, v1.PersistentVolume):
        obj.metadata.namespace = obj.metadata.namespace or metav1.NAMESPACE_DEFAULT
    if isinstance(obj, v1.PersistentVolume | v1.PersistentVolumeClaim):
        obj.spec.volume_mode = obj.spec.volume_mode or v1.PERSISTENT_VOLUME_FILESYSTEM
    if isinstance(obj, v1.Secret):
        # The API server also moves this write-only field into `data`.
        obj.data = obj.data | {key: value.encode() for key, value in obj.string_data.items()}
        obj.string_data = {}
        obj.type = obj.type or v1.SECRET_TYPE_OPAQUE
    if errors := _validate(obj):
        raise ValueError(common.fault_of(errors))
    return obj


def _validate(obj: APIObject) -> Sequence[Exception]:
    match obj:
        case v1.ConfigMap():
            return validation.validate_config_map(obj)
        case v1.Secret():
            return validation.validate_secret(obj)
        case v1.PersistentVolumeClaim():
            return validation.validate_persistent_volume_claim(obj)
        case v1.PersistentVolume():
            return validation.validate_persistent_volume(obj)


def _read_data(data: Any, name: str, read: Callable[[Any], str]) -> Any:
    """Read each value of the map. The decoder's own error message would not name the key of a bad value."""
    if not isinstance(data, dict):
        return data
    found = {}
    for key, value in data.items():
        try:
            found[key] = read(value)
        except ValueError as err:
            raise ValueError(f"{name}[{key}]: {err}") from err
    return found


def _text(value: Any) -> str:
    """Return the text; a null value becomes an empty text, as in Go."""
    if not isinstance(value, str | None):
        raise ValueError(f"expected text, got {_type_name(value)} (quote the value)")
    return value or ""


def _base64(value: Any) -> str:
    """Return the encoded text after checking it. As in Go, the text may have line breaks."""
    text = _text(value).translate(_NO_LINE_BREAKS)
    try:
        base64.b64decode(text, validate=True)
    except ValueError as err:
        raise ValueError("illegal base64 data") from err
    return text


def _type_name(value: Any) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "a map"}
    return names.get(type(value), type(value).__name__)
