"""Make sure that a container's image is present, according to its pull policy and with backoff after failed pulls.

Go: pkg/kubelet/images/image_manager.go
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import activity, events, metrics
from kubelet import container as kubecontainer
from kubelet import types as kubetypes
from kubelet.activity import Activity
from kubelet.images import metrics as imagemetrics
from kubelet.images import types
from kubelet.images.helpers import throttle_image_pulling
from kubelet.images.puller import (
    ImagePuller,
    ImagePullRequest,
    ParallelImagePuller,
    PullResult,
    SerialImagePuller,
)
from kubelet.images.pullmanager import (
    ImagePullCredentials,
    ImagePullManager,
    ImagePullSecret,
    ImagePullServiceAccount,
)
from pkg import credentialprovider, features, golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types as apitypes
from pkg.client_go.tools import record
from pkg.client_go.util import flowcontrol
from pkg.component_base.cli.flag import duration
from pkg.credentialprovider import secrets as credentialprovidersecrets
from pkg.util import parsers


class ImagePodPullingTimeRecorder(Protocol):
    """Record when a pod's images are being pulled, so that the metric of the start-up latency can exclude the pulls."""

    def record_image_started_pulling(self, pod_uid: apitypes.UID) -> None: ...

    def record_image_finished_pulling(self, pod_uid: apitypes.UID) -> None: ...


# An ExternalCredentials function (pod namespace, name, UID, service account name) returns the credentials of the node's
# credential providers for the pod.
ExternalCredentials = Callable[[str, str, str, str], credentialprovider.DockerKeyring]


@dataclass(slots=True)
class _Presence:
    """Record for the metrics what the manager found out about an image."""

    present_locally: bool | None = None
    pull_required: bool | None = None


@dataclass(frozen=True, slots=True)
class _Request:
    """Hold the arguments of one call of ensure_image_exists."""

    obj_ref: v1.ObjectReference | None
    pod: v1.Pod
    image: str
    spec: kubecontainer.ImageSpec
    pull_policy: str
    pod_sandbox_config: runtimeapi.PodSandboxConfig | None
    credentials: Callable[[], list[credentialprovider.TrackedAuthConfig]]
    presence: _Presence

    @property
    def log_prefix(self) -> str:
        return _log_prefix(self.pod, self.image)


def _log_prefix(pod: v1.Pod, image: str) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}/{image}"


class ImageManager:
    """Pull the images that containers need.

    This class is thread-safe. The calling thread blocks while an image is pulled.
    """

    def __init__(
        self,
        recorder: record.EventRecorder,
        node_keyring: credentialprovider.DockerKeyring,
        image_service: kubecontainer.ImageService,
        image_pull_manager: ImagePullManager,
        image_back_off: flowcontrol.Backoff,
        serialized: bool,
        max_parallel_image_pulls: int | None,
        qps: float,
        burst: int,
        pod_pulling_time_recorder: ImagePodPullingTimeRecorder,
        external_credentials: ExternalCredentials | None = None,
        critical_first: bool = False,
    ) -> None:
        """Create a manager.

        `critical_first` means that the images of critical pods are pulled before other images in the queue.

        DIVERGES (preference: --pull-critical-images-first): the images of critical pods are pulled before others in the
        queue.
        Go: pkg/kubelet/images/puller.go, (*serialImagePuller).processImagePullRequests: the Go kubelet pulls in the
        order of the requests.
        Why: a pod that the node needs, such as the network plugin, need not wait for large images of other pods.
        Test: image_manager_test.py:test_critical_pods_are_first_for_who_wants_it

        Go: pkg/kubelet/images/image_manager.go, NewImageManager
        """
        imagemetrics.register_metrics()
        image_service = throttle_image_pulling(image_service, qps, burst)
        self._recorder = recorder
        self._node_keyring = node_keyring
        self._external_credentials = external_credentials
        self._critical_first = critical_first
        self._image_service = image_service
        self._image_pull_manager = image_pull_manager
        self._back_off = image_back_off
        self._puller: ImagePuller
        if serialized:
            self._puller = SerialImagePuller(image_service)
        else:
            self._puller = ParallelImagePuller(image_service, max_parallel_image_pulls)
        self._pod_pulling_time_recorder = pod_pulling_time_recorder
        # The lock guards _prev_pull_err_msg.
        self._lock = threading.Lock()
        # This field holds the error of the last pull by backoff key. The waiting message shows it during the backoff.
        self._prev_pull_err_msg: dict[str, str] = {}

    def ensure_image_exists(
        self,
        ctx: golang.Context,
        obj_ref: v1.ObjectReference | None,
        pod: v1.Pod,
        requested_image: str,
        pull_secrets: Sequence[v1.Secret],
        pod_sandbox_config: runtimeapi.PodSandboxConfig | None,
        pod_runtime_handler: str,
        pull_policy: str,
    ) -> str:
        """Return the runtime's reference of the image. Pull the image first if its policy requires it.

        Raise types.ImageError with a reason and a message.
        """
        presence = _Presence()
        try:
            image = self._default_image_tag(obj_ref, pod, requested_image)
            annotations = [kubecontainer.Annotation(k, value) for k, value in pod.metadata.annotations.items()]
            spec = kubecontainer.ImageSpec(image=image, annotations=annotations, runtime_handler=pod_runtime_handler)
            credentials = functools.cache(lambda: self._lookup_pull_credentials(obj_ref, image, pod, pull_secrets))
            request = _Request(
                obj_ref, pod, requested_image, spec, pull_policy, pod_sandbox_config, credentials, presence
            )
            with activity.doing(ctx, Activity.ENSURES_IMAGE):
                return self._ensure_image_exists(ctx, request)
        finally:
            imagemetrics.record_ensure_image_request(pull_policy, presence.present_locally, presence.pull_required)

    def _default_image_tag(self, obj_ref: v1.ObjectReference | None, pod: v1.Pod, image: str) -> str:
        try:
            return _apply_default_image_tag(image)
        except parsers.ImageNameError as err:
            message = f'Failed to apply default image tag "{image[: parsers.MAX_IMAGE_NAME_LENGTH]}": {err}'
            prefix = _log_prefix(pod, image)
            self._log_it(obj_ref, v1.EVENT_TYPE_WARNING, events.FAILED_TO_INSPECT_IMAGE, prefix, message)
            raise types.ErrInvalidImageName(message) from err

    def _ensure_image_exists(self, ctx: golang.Context, request: _Request) -> str:
        image_ref = self._image_pull_precheck(ctx, request)
        if image_ref:
            accessible = self._accessible(ctx, request, image_ref)
            request.presence.pull_required = not accessible
            if accessible:
                return image_ref
        request.presence.pull_required = True
        if request.pull_policy == v1.PULL_NEVER:
            raise self._image_not_present_on_never_policy_error(request)
        return self._pull_image(ctx, request)

    def _image_pull_precheck(self, ctx: golang.Context, request: _Request) -> str:
        """Return the reference of a present image that the policy allows to use without a pull, otherwise ""."""
        if request.pull_policy not in (v1.PULL_IF_NOT_PRESENT, v1.PULL_NEVER):
            return ""
        try:
            image_ref = self._image_service.get_image_ref(ctx, request.spec)
        except Exception as err:  # Any error of the runtime becomes the container's waiting reason.
            message = f'Failed to inspect image "": {err}'
            self._log_it(
                request.obj_ref,
                v1.EVENT_TYPE_WARNING,
                events.FAILED_TO_INSPECT_IMAGE,
                request.log_prefix,
                message,
            )
            raise types.ErrImageInspect(message) from err
        request.presence.present_locally = bool(image_ref)
        if not image_ref and request.pull_policy == v1.PULL_NEVER:
            raise self._image_not_present_on_never_policy_error(request)
        return image_ref

    def _accessible(self, ctx: golang.Context, request: _Request, image_ref: str) -> bool:
        """Report whether the pod may use a present image without presenting its credentials to the registry."""
        if self._image_pull_manager.must_attempt_image_pull(
            ctx, request.image, image_ref, lambda: _pod_credentials(request.credentials())
        ):
            return False
        message = f'Container image "{request.image}" already present on machine'
        if features.feature_gate.enabled(features.KUBELET_ENSURE_SECRET_PULLED_IMAGES):
            message += " and can be accessed by the pod"
        self._log_it(request.obj_ref, v1.EVENT_TYPE_NORMAL, events.PULLED_IMAGE, request.log_prefix, message)
        # Another pod may have pulled the image in the meantime.
        self._pod_pulling_time_recorder.record_image_finished_pulling(request.pod.metadata.uid)
        return True

    def _image_not_present_on_never_policy_error(self, request: _Request) -> types.ErrImageNeverPull:
        """Return the error for the policy Never.

        The text is the same whether the image is absent or only inaccessible to this pod, so that the pod cannot find
        out which.
        """
        message = f'Container image "{request.image}" is not present with pull policy of Never'
        self._log_it(
            request.obj_ref,
            v1.EVENT_TYPE_WARNING,
            events.ERR_IMAGE_NEVER_PULL_POLICY,
            request.log_prefix,
            message,
        )
        return types.ErrImageNeverPull(message)

    def _log_it(
        self, obj_ref: v1.ObjectReference | None, event_type: str, event: str, prefix: str, message: str
    ) -> None:
        """Record an event, or write a log line if there is no object for the event."""
        if obj_ref is not None:
            self._recorder.event(obj_ref, event_type, event, message)
        elif event_type == v1.EVENT_TYPE_WARNING:
            klog.warning_s(f"{prefix} {message}")
        else:
            klog.info_s(f"{prefix} {message}")

    def _lookup_pull_credentials(
        self, obj_ref: v1.ObjectReference | None, image: str, pod: v1.Pod, pull_secrets: Sequence[v1.Secret]
    ) -> list[credentialprovider.TrackedAuthConfig]:
        """Return the credentials for the image, those of the pod's secrets first.

        Raise types.ErrImagePull if a secret is malformed.

        DIVERGES (fault of Go): a container with a malformed pull secret waits with ErrImagePull, and a message names
        the secret.
        Go: pkg/kubelet/images/image_manager.go, (*imageManager).EnsureImageExists: in the Go kubelet the error of the
        JSON parser becomes the waiting reason, and nothing names the secret.
        Why: a reason is one word, with which programs distinguish states.
        Test: image_manager_test.py:test_bad_pull_secret_is_named_and_nothing_is_pulled
        """
        repo_to_pull, _, _ = parsers.parse_image_name(image)
        keyring = self._node_keyring
        if self._external_credentials is not None:
            meta = pod.metadata
            external = self._external_credentials(meta.namespace, meta.name, meta.uid, pod.spec.service_account_name)
            keyring = credentialprovider.UnionDockerKeyring([keyring, external])
        try:
            keyring = credentialprovidersecrets.make_docker_keyring(pull_secrets, keyring)
        except credentialprovider.DockerConfigError as err:
            message = f'Failed to pull image "{image}": {err}'
            prefix = _log_prefix(pod, image)
            self._log_it(obj_ref, v1.EVENT_TYPE_WARNING, events.FAILED_TO_PULL_IMAGE, prefix, message)
            raise types.ErrImagePull(str(err)) from err
        return keyring.lookup(repo_to_pull)

    def _pull_image(self, ctx: golang.Context, request: _Request) -> str:
        credentials = request.credentials()
        try:
            self._image_pull_manager.record_pull_intent(request.image)
        except OSError as err:
            # DIVERGES (fault of Go): when the kubelet cannot record the intent to pull, the waiting reason is
            # ErrImagePull.
            # Go: pkg/kubelet/images/image_manager.go, (*imageManager).pullImage: in the Go kubelet the text of the
            # error becomes the reason.
            # Why: a reason is one word, with which programs distinguish states.
            # Test: image_manager_test.py:test_pull_intent_that_cannot_be_recorded
            raise types.ErrImagePull(
                f'Failed to record image pull intent for container image "{request.image}": {err}'
            ) from err
        result: PullResult | None = None
        try:
            result = self._pull_with_back_off(ctx, request, credentials)
        finally:
            if result is None:
                self._image_pull_manager.record_image_pull_failed(ctx, request.image)
        used = _tracked_to_image_pull_creds(result.credentials_used)
        self._image_pull_manager.record_image_pulled(ctx, request.image, result.image_ref, used)
        return result.image_ref

    def _pull_with_back_off(
        self,
        ctx: golang.Context,
        request: _Request,
        credentials: list[credentialprovider.TrackedAuthConfig],
    ) -> PullResult:
        uid, image = request.pod.metadata.uid, request.image
        key = f"{uid}_{image}"
        self._check_back_off(request, key)
        self._pod_pulling_time_recorder.record_image_started_pulling(uid)
        self._log_it(
            request.obj_ref,
            v1.EVENT_TYPE_NORMAL,
            events.PULLING_IMAGE,
            request.log_prefix,
            f'Pulling image "{image}"',
        )
        start = time.monotonic()
        result = self._puller.pull_image(
            ImagePullRequest(
                ctx,
                request.spec,
                credentials,
                request.pod_sandbox_config,
                str(klog.kobj(request.pod)),
                self._critical_first and kubetypes.is_critical_pod(request.pod),
            )
        )
        if result.err is not None:
            raise self._pull_failed(request, key, result.err) from result.err
        self._pod_pulling_time_recorder.record_image_finished_pulling(uid)
        self._pull_succeeded(request, result, time.monotonic() - start)
        return result

    def _check_back_off(self, request: _Request, key: str) -> None:
        if not self._back_off.is_in_back_off_since_update(key, self._back_off.clock.now()):
            with self._lock:
                self._prev_pull_err_msg.pop(key, None)
            return
        message = f'Back-off pulling image "{request.image}"'
        self._log_it(request.obj_ref, v1.EVENT_TYPE_NORMAL, events.BACK_OFF_PULL_IMAGE, request.log_prefix, message)
        with self._lock:
            previous = self._prev_pull_err_msg.get(key)
        raise types.ErrImagePullBackOff(message if previous is None else f"{message}: {previous}")

    def _pull_failed(self, request: _Request, key: str, err: Exception) -> types.ImageError:
        self._log_it(
            request.obj_ref,
            v1.EVENT_TYPE_WARNING,
            events.FAILED_TO_PULL_IMAGE,
            request.log_prefix,
            f'Failed to pull image "{request.image}": {err}',
        )
        self._back_off.gc()
        self._back_off.next(key, self._back_off.clock.now())
        result = _eval_cri_pull_err(request.image, err)
        with self._lock:
            self._prev_pull_err_msg[key] = f"{result}: {result.message}"
            # DIVERGES (fault of Go): the message of a failed pull is dropped when its backoff has expired.
            # Go: pkg/kubelet/images/image_manager.go, (*imageManager).pullImage: the Go kubelet drops it only in the
            # pod's next attempt.
            # Why: the messages of pods that were deleted before their next attempt would use more and more memory.
            # Test: image_manager_test.py:test_failures_of_pods_that_are_gone_are_forgotten
            self._prev_pull_err_msg = {k: m for k, m in self._prev_pull_err_msg.items() if self._back_off.get(k) > 0}
        return result

    def _pull_succeeded(self, request: _Request, result: PullResult, waited: float) -> None:
        self._log_it(
            request.obj_ref,
            v1.EVENT_TYPE_NORMAL,
            events.PULLED_IMAGE,
            request.log_prefix,
            f'Successfully pulled image "{request.image}" in {_milliseconds(result.pull_duration)}'
            f" ({_milliseconds(waited)} including waiting). Image size: {result.image_size} bytes.",
        )
        bucket = metrics.get_image_size_bucket(result.image_size)
        metrics.IMAGE_PULL_DURATION.labels(bucket).observe(waited)
        self._back_off.gc()


def _milliseconds(seconds: float) -> str:
    return duration.format_duration(int(seconds * 1000) / 1000)


def _pod_credentials(
    credentials: list[credentialprovider.TrackedAuthConfig],
) -> tuple[list[ImagePullSecret], ImagePullServiceAccount | None]:
    """Return the coordinates of those credentials that belong to the pod and not to the node."""
    pull_secrets: list[ImagePullSecret] = []
    account: ImagePullServiceAccount | None = None
    for creds in credentials:
        if creds.source is None:
            continue
        if (secret := creds.source.secret) is not None:
            pull_secrets.append(ImagePullSecret(secret.uid, secret.namespace, secret.name, creds.auth_config_hash))
        elif (found := creds.source.service_account) is not None and account is None:
            account = ImagePullServiceAccount(found.uid, found.namespace, found.name)
    return pull_secrets, account


def _tracked_to_image_pull_creds(
    creds: credentialprovider.TrackedAuthConfig | None,
) -> ImagePullCredentials:
    """Return which pods may use the image from now on, given the credentials of the pull."""
    pull_secrets, account = _pod_credentials([creds] if creds is not None else [])
    if not pull_secrets and account is None:
        return ImagePullCredentials(node_pods_accessible=True)
    return ImagePullCredentials(
        kubernetes_secrets=pull_secrets,
        kubernetes_service_accounts=[account] if account is not None else [],
    )


_CRI_PULL_ERRORS: tuple[tuple[type[types.ImageError], str], ...] = (
    (types.ErrRegistryUnavailable, "the registry is unavailable"),
    (types.ErrSignatureValidationFailed, "the signature validation failed"),
)


def _eval_cri_pull_err(image: str, err: Exception) -> types.ImageError:
    """Return the error for a failed pull. gRPC carries only text, so a known error is recognized by its first word."""
    text = str(err)
    for kind, why in _CRI_PULL_ERRORS:
        if text.startswith(kind.reason):
            return kind(f"image pull failed for {image} because {why}{text.removeprefix(kind.reason)}")
    return types.ErrImagePull(text)


def _apply_default_image_tag(image: str) -> str:
    """Return the name with ":latest" if it has neither tag nor digest. Raise parsers.ImageNameError.

    Only the tag is added: a short name stays short, because the runtime chooses its registry.
    """
    _, tag, digest = parsers.parse_image_name(image)
    if not digest and tag and not image.endswith(":" + tag):
        return f"{image}:{tag}"
    return image
