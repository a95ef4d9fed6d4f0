"""Decide from the records of earlier pulls whether a pod may use an image that is already present.

Go: pkg/kubelet/images/pullmanager/image_pull_manager.go

Go keeps the records in a memory cache and locks per image. Records are small files that are read once per container
start, so this manager uses one lock and no cache.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import datetime

from kubelet import container as kubecontainer
from kubelet.images.pullmanager.fs_pullrecords import FSPullRecordsAccessor
from kubelet.images.pullmanager.image_pull_policies import ImagePullPolicyEnforcer, trim_image_tag_digest
from kubelet.images.pullmanager.interfaces import (
    GetPodCredentials,
    ImagePullCredentials,
    ImagePulledRecord,
    ImagePullSecret,
)
from kubelet.images.pullmanager.metrics import MustAttemptImagePullResult as Result
from kubelet.images.pullmanager.metrics import record_must_attempt_image_pull_result
from pkg import golang, klog
from pkg.apimachinery import clock

# A check alone extends an image's record only up to this number of secrets.
_WRITE_RECORD_WHILE_MATCHING_LIMIT = 100

_RECORD_ERRORS = (OSError, ValueError)


class PullManager:
    """Manage the records of image pulls. This class is thread-safe.

    Go: PullManager
    """

    def __init__(
        self,
        ctx: golang.Context,
        records_accessor: FSPullRecordsAccessor,
        image_pull_policy: ImagePullPolicyEnforcer,
        image_service: kubecontainer.ImageService,
        clock: clock.Clock,
    ) -> None:
        self._records = records_accessor
        self._policy = image_pull_policy
        self._image_service = image_service
        self._clock = clock
        # The lock guards the records on disk and the two fields below.
        self._lock = threading.Lock()
        self._intent_counters: dict[str, int] = {}
        # An earlier kubelet may have pulled these images, which have no record yet.
        self._left_intents: set[str] = set()
        self._initialize(ctx)

    def record_pull_intent(self, image: str) -> None:
        with self._lock:
            self._records.write_image_pull_intent(image)
            self._intent_counters[image] = self._intent_counters.get(image, 0) + 1

    def record_image_pulled(
        self, ctx: golang.Context, image: str, image_ref: str, credentials: ImagePullCredentials
    ) -> None:
        try:
            with self._lock:
                # DIVERGES (fault of Go): each pull updates the time of the image's record.
                # Go: pkg/kubelet/images/pullmanager/image_pull_manager.go, (*PullManager).RecordImagePulled: in the Go
                # kubelet a record to which the pull adds nothing keeps its old time.
                # Why: a garbage collection that has just removed the image would take the record for an old one and
                # remove it too, and every pod could use the image.
                # Test: image_pull_manager_test.py:test_image_that_is_pulled_again_while_garbage_is_collected
                self._write_pulled_record_locked(image, image_ref, credentials, refresh=True)
                self._left_intents.discard(image)
        except _RECORD_ERRORS as err:
            # The intent stays, so that the image still counts as pulled by the kubelet.
            klog.error_s(err, "failed to write image pulled record", imageRef=image_ref)
            return
        self._decrement_image_pull_intent(image)

    def record_image_pull_failed(self, ctx: golang.Context, image: str) -> None:
        self._decrement_image_pull_intent(image)

    def must_attempt_image_pull(
        self, ctx: golang.Context, image: str, image_ref: str, get_pod_credentials: GetPodCredentials
    ) -> bool:
        if not image_ref:
            return True
        result = Result.ERROR
        try:
            result = self._check(image, image_ref, get_pod_credentials)
        except _RECORD_ERRORS as err:
            klog.error_s(err, "Unable to access cache records about image pulls")
        finally:
            record_must_attempt_image_pull_result(result)
        return result in (Result.MUST_AUTHENTICATE, Result.ERROR)

    def _check(self, image: str, image_ref: str, get_pod_credentials: GetPodCredentials) -> Result:
        """Check the policy and the records. Raise one of _RECORD_ERRORS, and the errors of get_pod_credentials."""
        with self._lock:
            record = self._records.get_image_pulled_record(image_ref)
            pulled_by_kubelet = record is not None or self._pull_intended_locked(image)
        if not self._policy(image, pulled_by_kubelet):
            return Result.CREDENTIAL_POLICY_ALLOWED
        name = trim_image_tag_digest(image)
        cached = record.credential_mapping.get(name) if record is not None else None
        if cached is not None and self._matches(image, image_ref, cached, get_pod_credentials):
            return Result.CREDENTIAL_RECORD_FOUND
        return Result.MUST_AUTHENTICATE

    def prune_unknown_records(self, ctx: golang.Context, image_list: Iterable[str], until: datetime) -> None:
        in_use = set(image_list)
        if not in_use:
            # DIVERGES (safer): no record is removed while the runtime lists no images at all.
            # Go: pkg/kubelet/images/pullmanager/image_pull_manager.go, (*PullManager).PruneUnknownRecords: the Go
            # kubelet removes all records.
            # Why: a runtime that has just started may list no images, and every pod could use them once they are listed
            # again.
            # Test: image_pull_manager_test.py:test_records_outlast_a_runtime_that_shows_no_images
            klog.info_s("Keeping the image pull records, because the runtime lists no images")
            return
        with self._lock:
            for record in self._records.list_image_pulled_records():
                if record.last_updated_time >= until or record.image_ref in in_use:
                    continue
                try:
                    self._records.delete_image_pulled_record(record.image_ref)
                except OSError as err:
                    klog.error_s(err, "failed to remove an ImagePulledRecord", imageRef=record.image_ref)

    def _matches(
        self,
        image: str,
        image_ref: str,
        cached: ImagePullCredentials,
        get_pod_credentials: GetPodCredentials,
    ) -> bool:
        if cached.node_pods_accessible:
            return True
        if not cached.kubernetes_secrets and not cached.kubernetes_service_accounts:
            return False
        pod_secrets, pod_service_account = get_pod_credentials()
        for secret in pod_secrets:
            if self._secret_matches(image, image_ref, cached, secret):
                return True
        return pod_service_account in cached.kubernetes_service_accounts

    def _secret_matches(
        self, image: str, image_ref: str, cached: ImagePullCredentials, secret: ImagePullSecret
    ) -> bool:
        """Report whether a secret matches a recorded one by its content or by its coordinates.

        New facts about the secret are recorded for the next time.
        """
        room = len(cached.kubernetes_secrets) < _WRITE_RECORD_WHILE_MATCHING_LIMIT
        for known in cached.kubernetes_secrets:
            hashes_match = bool(known.credential_hash) and known.credential_hash == secret.credential_hash
            names_match = _coordinates(known) == _coordinates(secret)
            if not hashes_match and not (names_match and room):
                continue
            if hashes_match != names_match and room:
                self._remember(image, image_ref, secret)
            return True
        return False

    def _remember(self, image: str, image_ref: str, secret: ImagePullSecret) -> None:
        try:
            with self._lock:
                self._write_pulled_record_locked(image, image_ref, ImagePullCredentials(kubernetes_secrets=[secret]))
        except _RECORD_ERRORS as err:
            klog.error_s(err, "failed to write an image pulled record", image=image, imageRef=image_ref)

    def _pull_intended_locked(self, image: str) -> bool:
        return self._intent_counters.get(image, 0) > 0 or self._records.image_pull_intent_exists(image)

    def _decrement_image_pull_intent(self, image: str) -> None:
        with self._lock:
            count = self._intent_counters.get(image, 0)
            if count > 1:
                self._intent_counters[image] = count - 1
                return
            try:
                # DIVERGES (fault of Go): a failed pull keeps the intent that an earlier kubelet recorded.
                # Go: pkg/kubelet/images/pullmanager/image_pull_manager.go, (*PullManager).decrementImagePullIntent: the
                # Go kubelet removes it.
                # Why: the earlier pull may have succeeded. The image would then count as preloaded, and every pod could
                # use it.
                # Test: image_pull_manager_test.py:test_intent_of_a_dead_kubelet_outlasts_a_pull_that_fails
                if image not in self._left_intents:
                    self._records.delete_image_pull_intent(image)
            except OSError as err:
                klog.error_s(err, "failed to remove image pull intent", image=image)
                return
            self._intent_counters.pop(image, None)

    def _write_pulled_record_locked(
        self, image: str, image_ref: str, credentials: ImagePullCredentials | None, *, refresh: bool = False
    ) -> None:
        """Write a record.

        Without credentials the image counts as pulled by the kubelet, and every pod must authenticate. A record that
        already contains all of this is written again only to refresh its time. Raise one of _RECORD_ERRORS.

        DIVERGES (safer): a record whose file cannot be opened or read stays unchanged.
        Go: pkg/kubelet/images/pullmanager/image_pull_manager.go, (*PullManager).writePulledRecordIfChanged: the Go
        kubelet replaces the record.
        Why: after a temporary lack of file descriptors, pods that have authenticated before would have to do so again.
        Test: image_pull_manager_test.py:test_record_that_cannot_be_read_at_the_moment_stays
        """
        name = trim_image_tag_digest(image)
        now = self._clock.now()
        try:
            record = self._records.get_image_pulled_record(image_ref)
        except ValueError as err:
            klog.info_s("failed to retrieve an ImagePulledRecord", image=image, err=err)
            record = None
        if record is None:
            mapping = {name: credentials} if credentials is not None else {}
            changed: ImagePulledRecord | None = ImagePulledRecord(now, image_ref, mapping)
        else:
            changed = _pulled_record_merge_new_creds(record, name, credentials, now)
            if changed is None and refresh:
                changed = ImagePulledRecord(now, image_ref, record.credential_mapping)
        if changed is not None:
            self._records.write_image_pulled_record(changed)

    def _initialize(self, ctx: golang.Context) -> None:
        """Turn the intents of a kubelet that died into records, for the images that are present."""
        intended = {intent.image for intent in self._records.list_image_pull_intents()}
        if not intended:
            return
        self._left_intents = set(intended)
        try:
            images = self._image_service.list_images(ctx)
        except Exception as err:  # After any error of the runtime, the intents stay for the next start.
            klog.error_s(err, "failed to list images")
            return
        for found in images:
            for image in sorted(intended.intersection([*found.repo_digests, *found.repo_tags])):
                self._adopt(image, found.id)

    def _adopt(self, image: str, image_ref: str) -> None:
        try:
            with self._lock:
                self._write_pulled_record_locked(image, image_ref, None)
                self._left_intents.discard(image)
                self._records.delete_image_pull_intent(image)
        except _RECORD_ERRORS as err:
            klog.error_s(err, "failed to write an image pull record", imageRef=image_ref)


def _coordinates(secret: ImagePullSecret) -> tuple[str, str, str]:
    return secret.namespace, secret.name, secret.uid


def _pulled_record_merge_new_creds(
    record: ImagePulledRecord, name: str, new: ImagePullCredentials | None, now: datetime
) -> ImagePulledRecord | None:
    """Return the record with the new credentials added to those of the image, or None if they add nothing."""
    if new is None or new == ImagePullCredentials():
        return None
    old = record.credential_mapping.get(name)
    merged = new if old is None else _merge_credentials(old, new)
    if merged == old:
        return None
    mapping = {**record.credential_mapping, name: merged}
    return ImagePulledRecord(now, record.image_ref, mapping)


def _merge_credentials(old: ImagePullCredentials, new: ImagePullCredentials) -> ImagePullCredentials:
    if old.node_pods_accessible or new.node_pods_accessible:
        return ImagePullCredentials(node_pods_accessible=True)
    pull_secrets = {_coordinates(s): s for s in [*old.kubernetes_secrets, *new.kubernetes_secrets]}
    accounts = {*old.kubernetes_service_accounts, *new.kubernetes_service_accounts}
    return ImagePullCredentials(
        kubernetes_secrets=[pull_secrets[key] for key in sorted(pull_secrets)],
        kubernetes_service_accounts=sorted(accounts, key=lambda a: (a.namespace, a.name, a.uid)),
    )
