"""Get the credentials for an image from an exec plugin, and cache its responses as long as it allows.

Go: pkg/credentialprovider/plugin/plugin.go
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from kubelet.apis import config as kubeletconfig
from pkg import credentialprovider, features, klog
from pkg.api.authentication import v1 as authenticationv1
from pkg.api.core import v1
from pkg.apimachinery import clock as clockpkg
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.credentialprovider.plugin import config as pluginconfig
from pkg.credentialprovider.plugin import metrics
from pkg.credentialprovider.plugin.exec_plugin import CredentialProviderResponse, ExecPlugin, PluginError
from pkg.golang.singleflight import Group

# No image and no registry can have this name.
_GLOBAL_CACHE_KEY = "<global>"
_CACHE_PURGE_INTERVAL = 15 * 60.0
# `MAX_CACHE_ENTRIES` is the maximum number of cached responses of one plugin. The oldest one is dropped first.
MAX_CACHE_ENTRIES = 4096

# The function receives namespace and name, and returns the account. It raises the API client's errors.
GetServiceAccountFunc = Callable[[str, str], v1.ServiceAccount]
# The function receives namespace, name and request, and returns the request with its token. It may raise any Exception.
GetServiceAccountTokenFunc = Callable[[str, str, authenticationv1.TokenRequest], authenticationv1.TokenRequest]


class RequiredAnnotationNotFoundError(Exception):
    """Signal that the service account lacks an annotation that the plugin requires."""

    def __init__(self, key: str) -> None:
        super().__init__(f"required annotation {key} not found")


class ServiceAccountCacheKey(NamedTuple):
    """Identify a service account in the cache, in addition to the image."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    annotations: tuple[tuple[str, str], ...] = ()
    # The hash is "" if all tokens of the account share a response.
    token_hash: str = ""


class _ServiceAccountInfo(NamedTuple):
    """Hold what a plugin receives about the pod's service account."""

    cache_key: ServiceAccountCacheKey = ServiceAccountCacheKey()
    token: str = ""
    annotations: Mapping[str, str] = {}
    coordinates: credentialprovider.ServiceAccountCoordinates | None = None


class _CacheEntry(NamedTuple):
    credentials: credentialprovider.DockerConfig
    # The time is that of the monotonic clock.
    expires_at: float


_CacheKey = tuple[str, ServiceAccountCacheKey]


def register_credential_provider_plugins(
    plugin_config_path: str,
    plugin_bin_dir: str,
    get_service_account_token: GetServiceAccountTokenFunc,
    get_service_account: GetServiceAccountFunc,
    clock: clockpkg.Clock | None = None,
) -> list[PluginProvider]:
    """Return the configured plugins; raise OSError or ValueError if the configuration is invalid."""
    _check_flags(plugin_config_path, plugin_bin_dir)
    config, config_hash = pluginconfig.read_credential_provider_config(plugin_config_path)
    gate = features.feature_gate.enabled(features.KUBELET_SERVICE_ACCOUNT_TOKEN_FOR_CREDENTIAL_PROVIDERS)
    if errors := pluginconfig.validate_credential_provider_config(config, gate):
        raise ValueError(
            f'failed to validate credential provider config "{plugin_config_path}": {"; ".join(map(str, errors))}'
        )
    metrics.register_metrics()
    metrics.record_credential_provider_config_hash(config_hash)
    providers = []
    for provider in config.providers:
        _check_executable(Path(plugin_bin_dir, provider.name))
        accounts = _service_account_provider(provider, get_service_account, get_service_account_token)
        plugin = ExecPlugin(provider.name, provider.api_version, provider.args, provider.env, plugin_bin_dir)
        providers.append(
            PluginProvider(
                provider.name,
                provider.match_images,
                provider.default_cache_duration or 0.0,
                plugin,
                accounts,
                clock or clockpkg.RealClock(),
            )
        )
        klog.v(4).info_s("Registered credential provider", provider=provider.name)
    return providers


def _check_flags(plugin_config_path: str, plugin_bin_dir: str) -> None:
    for value, missing in ((plugin_bin_dir, "bin-dir"), (plugin_config_path, "config")):
        if not value:
            raise ValueError(
                "--image-credential-provider-config and --image-credential-provider-bin-dir must both be set:"
                f" --image-credential-provider-{missing} is missing"
            )
    if not Path(plugin_bin_dir).exists():
        raise FileNotFoundError(f"plugin binary directory {plugin_bin_dir} did not exist")


def _check_executable(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(f"plugin binary executable {path} did not exist")
    if path.is_dir() or not os.access(path, os.X_OK):
        raise PermissionError(f"error inspecting binary executable {path}: permission denied")


class Plugin(Protocol):
    """Define the part of the plugin that tests replace."""

    def exec_plugin(
        self, image: str, service_account_token: str, service_account_annotations: Mapping[str, str]
    ) -> CredentialProviderResponse:
        """Run the plugin and return its response; raise PluginError on failure."""
        ...


@dataclass(frozen=True, slots=True)
class ServiceAccountProvider:
    """Get service account tokens for a plugin that requires them."""

    attributes: kubeletconfig.ServiceAccountTokenAttributes
    get_service_account: GetServiceAccountFunc
    get_service_account_token_func: GetServiceAccountTokenFunc

    def get_service_account_data(self, namespace: str, name: str) -> tuple[types.UID, dict[str, str]]:
        """Return the account's UID and the annotations for the plugin.

        Raise RequiredAnnotationNotFoundError or PluginError on failure.
        """
        try:
            account = self.get_service_account(namespace, name)
        except Exception as err:  # Whatever the API client raises, the plugin does not run without the account.
            raise PluginError(f"failed to get service account: {err}") from err
        present = account.metadata.annotations
        wanted: dict[str, str] = {}
        for key in self.attributes.required_service_account_annotation_keys:
            if key not in present:
                raise RequiredAnnotationNotFoundError(key)
            wanted[key] = present[key]
        for key in self.attributes.optional_service_account_annotation_keys:
            if key in present:
                wanted[key] = present[key]
        return account.metadata.uid, wanted

    def get_service_account_token(
        self, pod_namespace: str, pod_name: str, name: str, account_uid: types.UID, pod_uid: types.UID
    ) -> str:
        """Return a token for the plugin's audience, bound to the pod; raise PluginError on failure."""
        pod = authenticationv1.BoundObjectReference(api_version="v1", kind="Pod", name=pod_name, uid=pod_uid)
        spec = authenticationv1.TokenRequestSpec(
            audiences=[self.attributes.service_account_token_audience], bound_object_ref=pod
        )
        request = authenticationv1.TokenRequest(metadata=metav1.ObjectMeta(uid=account_uid), spec=spec)
        try:
            return self.get_service_account_token_func(pod_namespace, name, request).status.token
        except Exception as err:  # Whatever the API client raises, the plugin does not run without the token.
            raise PluginError(f"failed to get service account token: {err}") from err


def _service_account_provider(
    provider: kubeletconfig.CredentialProvider,
    get_service_account: GetServiceAccountFunc,
    get_service_account_token: GetServiceAccountTokenFunc,
) -> ServiceAccountProvider | None:
    attributes = provider.token_attributes
    if attributes is None or not attributes.service_account_token_audience:
        return None
    return ServiceAccountProvider(attributes, get_service_account, get_service_account_token)


@dataclass(slots=True)
class PluginProvider:
    """Run one plugin, and cache its responses.

    All methods are thread-safe. default_cache_duration is in seconds.
    """

    name: str
    match_images: list[str]
    default_cache_duration: float
    plugin: Plugin
    service_account_provider: ServiceAccountProvider | None = None
    clock: clockpkg.Clock = field(default_factory=clockpkg.RealClock)
    _group: Group[CredentialProviderResponse] = field(default_factory=Group)
    # The lock guards the two fields below.
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _cache: dict[_CacheKey, _CacheEntry] = field(default_factory=dict)
    _next_purge: float = 0.0

    def provide(
        self, image: str, pod_namespace: str, pod_name: str, pod_uid: types.UID, service_account_name: str
    ) -> tuple[credentialprovider.DockerConfig, credentialprovider.ServiceAccountCoordinates | None]:
        """Return credentials from the cache or the plugin; raise PluginError on failure.

        For images that the plugin does not handle there are none.
        """
        if not self._is_image_allowed(image):
            return {}, None
        account = self._service_account(pod_namespace, pod_name, pod_uid, service_account_name)
        if account is None:
            return {}, None
        cached = self._get_cached_credentials(image, account.cache_key)
        if cached is not None:
            return cached, account.coordinates
        response = self._exec_plugin(image, account)
        self._check_not_echoed(response, account.token)
        base_key = _base_cache_key(response.cache_key_type, image)
        credentials = {
            match: credentialprovider.DockerConfigEntry(auth.username, auth.password)
            for match, auth in response.auth.items()
        }
        self._add_to_cache((base_key, account.cache_key), credentials, response.cache_duration)
        return credentials, account.coordinates

    def _service_account(
        self, pod_namespace: str, pod_name: str, pod_uid: types.UID, name: str
    ) -> _ServiceAccountInfo | None:
        """Return the service account's data, or None if the plugin must not run for this pod."""
        accounts = self.service_account_provider
        if accounts is None:
            return _ServiceAccountInfo()
        if not name:
            # A plugin that also serves static pods does not require a service account.
            return None if accounts.attributes.require_service_account else _ServiceAccountInfo()
        try:
            uid, annotations = accounts.get_service_account_data(pod_namespace, name)
        except RequiredAnnotationNotFoundError as err:
            # The annotation may be the way for workloads to opt in, so its absence is not an error.
            klog.v(5).info_s(
                "Failed to get service account data",
                provider=self.name,
                pod=klog.kref(pod_namespace, pod_name),
                serviceAccount=klog.kref(pod_namespace, name),
                err=err,
            )
            return None
        token = accounts.get_service_account_token(pod_namespace, pod_name, name, uid, pod_uid)
        by_token = accounts.attributes.cache_type == pluginconfig.TOKEN_CACHE_TYPE
        sorted_annotations = tuple(sorted(annotations.items()))
        key = ServiceAccountCacheKey(pod_namespace, name, uid, sorted_annotations, _hash(token) if by_token else "")
        coordinates = credentialprovider.ServiceAccountCoordinates(uid, pod_namespace, name)
        return _ServiceAccountInfo(key, token, annotations, coordinates)

    def _exec_plugin(self, image: str, account: _ServiceAccountInfo) -> CredentialProviderResponse:
        # Only the response itself says which images share this response. Therefore concurrent requests wait for each
        # other by image.
        flight = (image, _hash(account.token), tuple(sorted(account.annotations.items())))
        try:
            return self._group.do(flight, lambda: self.plugin.exec_plugin(image, account.token, account.annotations))
        except PluginError as err:
            raise PluginError(f"failed to get credential from external registry credential provider: {err}") from err

    def _check_not_echoed(self, response: CredentialProviderResponse, token: str) -> None:
        accounts = self.service_account_provider
        if not token or accounts is None or accounts.attributes.cache_type == pluginconfig.TOKEN_CACHE_TYPE:
            return
        if any(auth.password == token for auth in response.auth.values()):
            raise PluginError(
                "credential provider plugin returned the service account token as the password which is not allowed"
                " when service account cache type is not set to 'Token'"
            )

    def _is_image_allowed(self, image: str) -> bool:
        return any(credentialprovider.urls_match(pattern, image) for pattern in self.match_images)

    def _add_to_cache(
        self, key: _CacheKey, credentials: credentialprovider.DockerConfig, cache_duration: float | None
    ) -> None:
        duration = self.default_cache_duration if cache_duration is None else cache_duration
        if duration != 0:
            with self._lock:
                self._cache.pop(key, None)
                self._cache[key] = _CacheEntry(credentials, self.clock.monotonic() + duration)
                if len(self._cache) > MAX_CACHE_ENTRIES:
                    del self._cache[next(iter(self._cache))]

    def _get_cached_credentials(
        self, image: str, account_key: ServiceAccountCacheKey
    ) -> credentialprovider.DockerConfig | None:
        now = self.clock.monotonic()
        with self._lock:
            self._purge_locked(now)
            for base_key in (image, parse_registry(image), _GLOBAL_CACHE_KEY):
                entry = self._cache.get((base_key, account_key))
                if entry is not None and now <= entry.expires_at:
                    return entry.credentials
        return None

    def _purge_locked(self, now: float) -> None:
        """Drop expired entries every _CACHE_PURGE_INTERVAL seconds."""
        if now < self._next_purge:
            return
        self._next_purge = now + _CACHE_PURGE_INTERVAL
        self._cache = {key: entry for key, entry in self._cache.items() if now <= entry.expires_at}


def _base_cache_key(cache_key_type: str, image: str) -> str:
    match cache_key_type:
        case "Image":
            return image
        case "Registry":
            return parse_registry(image)
        case "Global":
            return _GLOBAL_CACHE_KEY
    raise PluginError(f"credential provider plugin did not return a valid cacheKeyType: {cache_key_type}")


@dataclass(frozen=True, slots=True)
class PerPodPluginProvider:
    """Use a plugin on behalf of one pod."""

    provider: PluginProvider
    pod_namespace: str
    pod_name: str
    pod_uid: types.UID
    service_account_name: str

    def provide_with_coordinates(
        self, image: str
    ) -> tuple[credentialprovider.DockerConfig, credentialprovider.ServiceAccountCoordinates | None]:
        """Return credentials as PluginProvider.provide does.

        A failure is logged and returns no credentials, so the image pull continues.
        """
        try:
            return self.provider.provide(
                image, self.pod_namespace, self.pod_name, self.pod_uid, self.service_account_name
            )
        except Exception as err:  # Other credentials, or none, may be sufficient for the image.
            klog.error_s(
                err,
                "Failed to provide credentials for image",
                provider=self.provider.name,
                image=image,
                pod=klog.kref(self.pod_namespace, self.pod_name),
                podUID=self.pod_uid,
                serviceAccount=klog.kref(self.pod_namespace, self.service_account_name),
            )
            return {}, None


def parse_registry(image: str) -> str:
    """Return the image's host, with the port if there is one."""
    return image.partition("/")[0]


def _hash(token: str) -> str:
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}" if token else ""
