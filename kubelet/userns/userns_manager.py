"""Manage ranges of IDs for the user namespaces of pods, and record the ranges in the pods' directories.

Go: pkg/kubelet/userns/userns_manager.go
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import Annotated

import msgspec
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from kubelet import kubeletconfig
from kubelet.userns.types import UserNsPodsManager
from kubelet.util import store as utilstore
from pkg import klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.runtime import codec
from pkg.registry.core.service import allocator
from pkg.util import atomicfile

# The number of IDs of a pod must be a multiple of this number.
USER_NS_UNIT_LENGTH = 65536

# _MAPPINGS_FILE is the name of the record's file in the pod's directory.
_MAPPINGS_FILE = "userns"

_Uint32 = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class IDMapping(msgspec.Struct, rename="camel", frozen=True):
    """Map `length` IDs of the pod, beginning with container_id, to IDs of the node, beginning with host_id.

    Go: idMapping
    """

    host_id: _Uint32
    container_id: _Uint32
    length: _Uint32


class UserNamespace(msgspec.Struct, frozen=True):
    """Hold a pod's mappings as they are written to disk.

    Go: userNamespace
    """

    uid_mappings: list[IDMapping] = msgspec.field(name="uidMappings")
    gid_mappings: list[IDMapping] = msgspec.field(name="gidMappings")


class UsernsManager:
    """Allocate ranges of IDs to pods.

    The records on disk are authoritative, because they outlast the kubelet. All methods are thread-safe.
    """

    def __init__(self, kl: UserNsPodsManager, ids_per_pod: int | None = None) -> None:
        """Read the records of earlier kubelets.

        Raise ValueError if the node's IDs cannot provide ranges for all pods, or OSError.
        """
        self._userns_length = ids_per_pod or kubeletconfig.DEFAULT_KUBELET_USER_NAMESPACES_IDS_PER_POD
        first, length = _checked_kubelet_mappings(kl, self._userns_length)
        self._off = first // self._userns_length
        self._len = length // self._userns_length
        klog.v(5).info_s(
            "User namespace manager mapping", offset=self._off, length=self._len, idsPerPod=self._userns_length
        )
        self._kl = kl
        self._used = allocator.AllocationBitmap(self._len)
        # `_used_by` maps a pod's UID to the first ID of its range.
        self._used_by: dict[types.UID, int] = {}
        # `_broken` maps the UID of a pod with an invalid record to the indexes of the ranges that the pod may have;
        # None means any range.
        self._broken: dict[types.UID, frozenset[int] | None] = {}
        # The records of these pods, if they exist, could not be read. The pods may have any range.
        self._unread: set[types.UID] = set()
        # This lock guards _used, _used_by, _broken, _unread and the files.
        self._lock = threading.Lock()
        self._record_pods_from_disk()

    def _record_pods_from_disk(self) -> None:
        """Read the records on disk. While a pod with an invalid record exists, no other pod gets IDs that it may have.

        DIVERGES (safer): an invalid record of a pod's user namespace affects only that pod.
        Go: pkg/kubelet/userns/userns_manager.go, MakeUserNsManager: it returns an error, and the kubelet does not
        start.
        Why: one broken file in one pod's directory would take the whole node out of the cluster.
        Test: userns_manager_test.py:test_a_record_that_cannot_be_read_is_the_trouble_of_its_pod
        """
        try:
            found = self._kl.list_pods_from_disk()
        except FileNotFoundError:
            return
        except OSError as err:
            raise OSError(f"read pods from disk: {err}") from err
        for pod_uid in found:
            klog.v(5).info_s("reading pod from disk for user namespace", podUID=pod_uid)
            try:
                with self._lock:
                    self._record_pod_mappings_locked(pod_uid)
            except (OSError, ValueError) as err:
                path = os.path.join(self._kl.get_pod_dir(pod_uid), _MAPPINGS_FILE)
                klog.error_s(err, "Failed to record the user namespace of a pod", podUID=pod_uid, path=path)

    def _record_pod_mappings_locked(self, pod_uid: types.UID) -> None:
        try:
            content = self._read_mappings_from_file(pod_uid)
        except OSError:
            self._unread.add(pod_uid)
            raise
        self._unread.discard(pod_uid)
        if content:
            self._take_over_locked(pod_uid, content)

    def _look_again_locked(self) -> list[types.UID]:
        """Read again the records that did not show the range, for example because no file descriptor was free.

        Return the pods whose range is still unknown.
        """
        for pod_uid in self._unknown_locked():
            try:
                self._record_pod_mappings_locked(pod_uid)
            except (OSError, ValueError) as err:
                klog.v(4).info_s("The user namespace of a pod is still unknown", podUID=pod_uid, err=err)
        return self._unknown_locked()

    def _unknown_locked(self) -> list[types.UID]:
        return [*self._unread, *(pod_uid for pod_uid, ranges in self._broken.items() if ranges is None)]

    def _take_over_locked(self, pod_uid: types.UID, content: bytes) -> UserNamespace:
        """Use the record of an earlier kubelet, which an administrator may have repaired. Raise ValueError."""
        self._forget_broken_locked(pod_uid)
        try:
            return self.parse_user_ns_file_and_record(pod_uid, content)
        except Exception as err:
            if pod_uid not in self._used_by:
                ranges = self._ranges_in(content) if isinstance(err, ValueError) else None
                self._broken[pod_uid] = ranges
                for index in ranges or ():
                    self._used.allocate(index)
            raise

    def _ranges_in(self, content: bytes) -> frozenset[int] | None:
        """Return the indexes of all ranges that a record overlaps, or None if the record names none."""
        try:
            user_ns = codec.json_decoder(UserNamespace).decode(content)
        except msgspec.DecodeError:
            return None
        mappings = [*user_ns.uid_mappings, *user_ns.gid_mappings]
        touched: set[int] = set()
        for mapping in mappings:
            end = self._index(mapping.host_id + mapping.length + self._userns_length - 1)
            touched.update(range(max(self._index(mapping.host_id), 0), min(end, self._len)))
        return frozenset(touched) if mappings else None

    def _forget_broken_locked(self, pod_uid: types.UID) -> None:
        self._unread.discard(pod_uid)
        self._give_back_locked(self._broken.pop(pod_uid, None) or ())

    def _give_back_locked(self, ranges: Iterable[int]) -> None:
        """Free the ranges, except those that another pod has too because of an invalid record."""
        held = {self._index(first_id) for first_id in self._used_by.values()}
        held.update(*(broken or () for broken in self._broken.values()))
        for index in ranges:
            if index not in held:
                self._used.release(index)

    def _index(self, first_id: int) -> int:
        return first_id // self._userns_length - self._off

    def _write_mappings_to_file(self, pod_uid: types.UID, user_ns: UserNamespace) -> None:
        directory = self._kl.get_pod_dir(pod_uid)
        utilstore.FileStore(directory).write(_MAPPINGS_FILE, msgspec.json.encode(user_ns))
        # The store syncs the file's content; the directory entry must be on disk too.
        atomicfile.sync_directory(Path(directory))

    def _read_mappings_from_file(self, pod_uid: types.UID) -> bytes:
        """Return the pod's record, or b"" if there is none. Raise OSError."""
        path = Path(self._kl.get_pod_dir(pod_uid), _MAPPINGS_FILE)
        # Most pods have no record. A stat finds that out without a file descriptor, and none may be free.
        try:
            path.stat()
        except FileNotFoundError:
            return b""
        return path.read_bytes()

    def is_set(self, first_id: int) -> bool:
        """Report whether the range is taken. Ranges that pods cannot get always are."""
        index = self._index(first_id)
        return not 0 <= index < self._len or self._used.has(index)

    def allocate_one(self, pod_uid: types.UID) -> tuple[int, int]:
        """Allocate a free range to the pod; return the first ID and the number of IDs.

        Raise ValueError if none is free.
        """
        index = self._used.allocate_next()
        if index is None:
            raise ValueError("could not find an empty slot to allocate a user namespace")
        klog.v(5).info_s("new pod user namespace allocation", podUID=pod_uid)
        first_id = (index + self._off) * self._userns_length
        self._used_by[pod_uid] = first_id
        return first_id, self._userns_length

    def record(self, pod_uid: types.UID, first_id: int, length: int) -> None:
        """Allocate this range to the pod.

        Raise ValueError if another pod has it, or if this kubelet would not allocate it.
        """
        if length != self._userns_length:
            raise ValueError(f"wrong user namespace length {length}")
        if first_id % self._userns_length:
            raise ValueError(f"wrong user namespace offset specified {first_id}")
        known = self._used_by.get(pod_uid)
        if known is not None and known != first_id:
            raise ValueError(f'different user namespace range already used by pod "{pod_uid}"')
        index = self._index(first_id)
        if not 0 <= index < self._len:
            raise ValueError(f"id {first_id} is out of range")
        if known is not None:
            return
        if not self._used.allocate(index):
            raise ValueError(f'range picked for pod "{pod_uid}" already taken')
        klog.v(5).info_s("new pod user namespace allocation", podUID=pod_uid)
        self._used_by[pod_uid] = first_id

    def release(self, pod_uid: types.UID) -> None:
        """Free the range of a pod that has ended, and remove its record."""
        with self._lock:
            self._release_locked(pod_uid)

    def pod_allocated(self, pod_uid: types.UID) -> bool:
        with self._lock:
            return pod_uid in self._used_by

    def _release_locked(self, pod_uid: types.UID) -> None:
        if not (pod_uid in self._used_by or pod_uid in self._broken or pod_uid in self._unread):
            klog.v(5).info_s("pod user namespace allocation not present", podUID=pod_uid)
            return
        klog.v(5).info_s("releasing pod user namespace allocation", podUID=pod_uid)
        try:
            os.remove(os.path.join(self._kl.get_pod_dir(pod_uid), _MAPPINGS_FILE))
        except FileNotFoundError:
            pass
        except OSError as err:
            klog.error_s(err, "Failed to remove the user namespace record", podUID=pod_uid)
        first_id = self._used_by.pop(pod_uid, None)
        if first_id is not None:
            self._give_back_locked([self._index(first_id)])
        self._forget_broken_locked(pod_uid)

    def parse_user_ns_file_and_record(self, pod_uid: types.UID, content: bytes) -> UserNamespace:
        """Parse a record and allocate its range to the pod.

        Raise ValueError if this kubelet could not have written it.
        """
        try:
            user_ns = codec.json_decoder(UserNamespace).decode(content)
        except msgspec.DecodeError as err:
            raise ValueError(f"invalid user namespace mappings file: {err}") from err
        if len(user_ns.uid_mappings) != 1:
            raise ValueError("invalid user namespace configuration: no more than one mapping allowed.")
        if len(user_ns.gid_mappings) != 1:
            raise ValueError("invalid user namespace configuration: GID and UID mappings should be identical.")
        mapping = user_ns.uid_mappings[0]
        if mapping != user_ns.gid_mappings[0]:
            raise ValueError("invalid user namespace configuration: GID and UID mapping should be identical")
        # Runtimes require that root is mapped.
        if mapping.container_id != 0:
            raise ValueError("invalid user namespace configuration: UID 0 must be mapped")
        self.record(pod_uid, mapping.host_id, mapping.length)
        return user_ns

    def _create_user_ns_locked(self, pod_uid: types.UID) -> UserNamespace:
        """Allocate a range and write the record. Raise ValueError, or OSError if the record cannot be written."""
        self._forget_broken_locked(pod_uid)
        if unknown := self._look_again_locked():
            raise ValueError(f'the range of pod "{unknown[0]}" is unknown, because its record is unreadable or invalid')
        first_id, length = self.allocate_one(pod_uid)
        mapping = IDMapping(host_id=first_id, container_id=0, length=length)
        user_ns = UserNamespace([mapping], [mapping])
        try:
            self._write_mappings_to_file(pod_uid, user_ns)
        except BaseException:
            self._release_locked(pod_uid)
            raise
        return user_ns

    def get_or_create_user_namespace_mappings(self, pod: v1.Pod, runtime_handler: str) -> runtimeapi.UserNamespace:
        """Return the user namespace of the pod's sandbox and containers: the node's, or the pod's own.

        Raise ValueError if the pod needs its own and the runtime does not support that or no range is free, or OSError.
        """
        if pod.spec.host_users is not False:
            return runtimeapi.UserNamespace(mode=runtimeapi.NODE)
        self._require_support(runtime_handler)
        with self._lock:
            content = self._read_mappings_from_file(pod.metadata.uid)
            try:
                if content:
                    user_ns = self._take_over_locked(pod.metadata.uid, content)
                else:
                    user_ns = self._create_user_ns_locked(pod.metadata.uid)
            except (ValueError, OSError) as err:
                what = "user namespace" if content else "create user namespace"
                raise ValueError(f"{what}: {err}") from err
        return runtimeapi.UserNamespace(
            mode=runtimeapi.POD, uids=_to_cri(user_ns.uid_mappings), gids=_to_cri(user_ns.gid_mappings)
        )

    def _require_support(self, runtime_handler: str) -> None:
        who = f'RuntimeClass handler "{runtime_handler}"' if runtime_handler else "runtime"
        message = f"can't set `spec.hostUsers: false`, {who} does not support user namespaces"
        try:
            supported = self._kl.handler_supports_user_namespaces(runtime_handler)
        except LookupError as err:
            raise ValueError(f"{message}: {err}") from err
        if not supported:
            raise ValueError(message)

    def cleanup_orphaned_pod_userns_allocations(
        self, pods: Sequence[v1.Pod], running_pods: Sequence[kubecontainer.Pod], with_worker: Set[types.UID]
    ) -> None:
        """Free the ranges of pods that are neither known nor running, or that no longer have a directory.

        Raise OSError.

        DIVERGES (fault of Go): a pod keeps the IDs of its user namespace for as long as it has a worker.
        Go: pkg/kubelet/userns/userns_manager.go, (*UsernsManager).CleanupOrphanedPodUsernsAllocations: a pod that was
        deleted by force loses its IDs while its sandbox is being created, because it is not running yet.
        Why: another pod would get the same IDs, and each could reach the files and processes of the other.
        Test: userns_manager_test.py:test_cleanup_orphaned_pod_userns_allocations
        """
        all_pods = {pod.metadata.uid for pod in pods} | {pod.id for pod in running_pods} | with_worker
        with self._lock:
            try:
                found = set(self._kl.list_pods_from_disk())
            except OSError as err:
                raise OSError(f"user namespace: read pods from disk: {err}") from err
            known = {*self._used_by, *self._broken, *self._unread}
            for pod_uid in [uid for uid in known if uid not in all_pods or uid not in found]:
                klog.v(5).info_s("Clean up orphaned pod user namespace possible allocation", podUID=pod_uid)
                self._release_locked(pod_uid)


def _checked_kubelet_mappings(kl: UserNsPodsManager, userns_length: int) -> tuple[int, int]:
    """Return the first ID and the number of IDs for pods, if they can be divided into ranges for all pods."""
    try:
        first, length = kl.get_kubelet_mappings(userns_length)
    except (ValueError, OSError) as err:
        raise ValueError(f"kubelet mappings: {err}") from err
    if userns_length % USER_NS_UNIT_LENGTH:
        raise ValueError(f"kubelet user namespace length {userns_length} is not a multiple of {USER_NS_UNIT_LENGTH}")
    if first % userns_length:
        raise ValueError(f"kubelet user assigned ID {first} is not a multiple of {userns_length}")
    # A range with ID 0 would map a pod's user to the node's root, and defeat the isolation.
    if first < userns_length:
        raise ValueError(f"kubelet user assigned ID {first} must be greater or equal to {userns_length}")
    if length % userns_length:
        raise ValueError(f"kubelet user assigned IDs length {length} is not a multiple of {userns_length}")
    max_pods = kl.get_max_pods()
    if length // userns_length < max_pods:
        raise ValueError(f"kubelet user assigned IDs are not enough to support {max_pods} pods")
    return first, length


def _to_cri(mappings: Sequence[IDMapping]) -> list[runtimeapi.IDMapping]:
    return [runtimeapi.IDMapping(host_id=m.host_id, container_id=m.container_id, length=m.length) for m in mappings]
