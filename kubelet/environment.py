"""Find the values of a container's environment variables that its spec does not contain.

Go: pkg/kubelet/kubelet_pods.go (makeEnvironmentVariables)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kubelet import container as kubecontainer
from kubelet.util import env as envutil
from pkg import features, klog
from pkg.api.core import v1
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.runtime import codec
from pkg.util import expansion, securejoin
from pkg.volume import util as volumeutil

if TYPE_CHECKING:
    from kubelet import configmap, secret

# Messages show this many characters of a variable's name.
_SHOWN = 100
# The kernel counts these bytes for each variable in addition to its text.
_POINTER = 8
# All files from which the variables of one environment are read may have this many bytes together.
MAX_FILES = 16 << 20


class Variables:
    """Collect the environment of one container, up to the size that the kernel allows for a program.

    DIVERGES (safer): the kubelet refuses a larger environment, and the container's status names the variable.
    Go: pkg/kubelet/kubelet_pods.go, (*Kubelet).makeEnvironmentVariables: the Go kubelet builds and sends an environment
    of any size.
    Why: small references expand to gigabytes of memory, and the kernel refuses the environment only when the container
    starts.
    Test: environment_test.py:test_variable_that_the_kernel_just_takes,
    environment_test.py:test_environment_without_end_stays_under_96_mib
    """

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self._size = 0

    def set(self, name: str, value: str) -> None:
        """Set or replace a variable. Raise ValueError if it or the whole environment is too long."""
        size = _length(name, value)
        if size > kubecontainer.MAX_ARGUMENT_LENGTH:
            limit = kubecontainer.MAX_ARGUMENT_LENGTH
            raise ValueError(
                f'environment variable "{name[:_SHOWN]}" is too long: {size} bytes, at most {limit} are allowed'
            )
        if name in self.values:
            self._size -= _length(name, self.values[name]) + _POINTER
        self._size += size + _POINTER
        if self._size > kubecontainer.MAX_ARGUMENTS_LENGTH:
            limit = kubecontainer.MAX_ARGUMENTS_LENGTH
            raise ValueError(f'environment is too large: variable "{name[:_SHOWN]}" exceeds the limit of {limit} bytes')
        self.values[name] = value

    def set_expanded(self, name: str, text: str, mapping: Callable[[str], str]) -> None:
        """Set a variable to the expansion of the text. Raise ValueError if it or the whole environment is too long."""
        try:
            self.set(name, expansion.expand(text, mapping, kubecontainer.MAX_ARGUMENT_LENGTH))
        except expansion.TooLongError as err:
            raise ValueError(f'environment variable "{name[:_SHOWN]}" is too long: {err}') from err


def _length(name: str, value: str) -> int:
    """Return the bytes that the kernel counts for NAME=VALUE and the null byte."""
    return len(name.encode(errors="surrogatepass")) + len(value.encode(errors="surrogatepass")) + 2


def _last_of_each(sources: Iterable[v1.EnvFromSource]) -> Iterable[v1.EnvFromSource]:
    """Drop every source that appears again later, because the later one sets the same variables again.

    A spec may name one config map thousands of times.
    """
    found: dict[bytes, v1.EnvFromSource] = {}
    for source in sources:
        key = codec.encode_json(source)
        found.pop(key, None)
        found[key] = source
    return found.values()


class APIObjects:
    """Read the config maps and secrets of one namespace, each at most once for one environment.

    Methods raise ValueError for a key that does not exist, or the managers' errors.
    """

    def __init__(self, namespace: str, config_maps: configmap.Manager | None, secrets: secret.Manager | None) -> None:
        self._namespace = namespace
        self._config_map_manager = config_maps
        self._secret_manager = secrets
        # These dictionaries hold the data of the objects that have been read.
        self._config_maps: dict[str, Mapping[str, str]] = {}
        self._secrets: dict[str, Mapping[str, bytes]] = {}

    def set_from_sources(self, sources: Iterable[v1.EnvFromSource], env: Variables) -> None:
        """Set the variables of envFrom; if names collide, the last source wins."""
        for source in _last_of_each(sources):
            if (config_map := source.config_map_ref) is not None:
                for key, value in (self._config_map(config_map.name, config_map.optional) or {}).items():
                    env.set(source.prefix + key, value)
            elif (reference := source.secret_ref) is not None:
                for key, secret in (self._secret(reference.name, reference.optional) or {}).items():
                    env.set(source.prefix + key, self._text(reference.name, key, secret))

    def config_map_value(self, selector: v1.ConfigMapKeySelector) -> str | None:
        """Return the value; None if it is optional and does not exist."""
        data = self._config_map(selector.name, selector.optional)
        if data is None:
            return None
        if selector.key not in data and not selector.optional:
            raise ValueError(f"couldn't find key {selector.key} in ConfigMap {self._namespace}/{selector.name}")
        return data.get(selector.key)

    def secret_value(self, selector: v1.SecretKeySelector) -> str | None:
        """Return the value; None if it is optional and does not exist."""
        data = self._secret(selector.name, selector.optional)
        if data is None:
            return None
        if selector.key in data:
            return self._text(selector.name, selector.key, data[selector.key])
        if not selector.optional:
            raise ValueError(f"couldn't find key {selector.key} in Secret {self._namespace}/{selector.name}")
        return None

    def _config_map(self, name: str, optional: bool | None) -> Mapping[str, str] | None:
        if name in self._config_maps:
            return self._config_maps[name]
        if self._config_map_manager is None:
            raise ValueError(f"couldn't get configMap {self._namespace}/{name}, no kubeClient defined")
        try:
            self._config_maps[name] = self._config_map_manager.get_config_map(self._namespace, name).data
        except apierrors.StatusError as err:
            if optional and apierrors.is_not_found(err):
                return None
            raise
        return self._config_maps[name]

    def _secret(self, name: str, optional: bool | None) -> Mapping[str, bytes] | None:
        if name in self._secrets:
            return self._secrets[name]
        if self._secret_manager is None:
            raise ValueError(f"couldn't get secret {self._namespace}/{name}, no kubeClient defined")
        try:
            self._secrets[name] = self._secret_manager.get_secret(self._namespace, name).data
        except apierrors.StatusError as err:
            if optional and apierrors.is_not_found(err):
                return None
            raise
        return self._secrets[name]

    def _text(self, name: str, key: str, value: bytes) -> str:
        """Decode the value of a secret's key. Raise ValueError if the value is not UTF-8.

        DIVERGES (safer): a value that is not UTF-8 fails the container before the kubelet calls the runtime, and the
        container's status names the key.
        Go: pkg/kubelet/kubelet_pods.go, (*Kubelet).makeEnvironmentVariables: any bytes become a variable, and the call
        of the runtime fails.
        Why: gRPC sends only UTF-8, and its error does not name the variable.
        Test: environment_test.py:test_missing
        """
        try:
            return value.decode()
        except UnicodeDecodeError as err:
            raise ValueError(f"value of key {key} in Secret {self._namespace}/{name} is not UTF-8 text") from err


class Files:
    """Read files in a pod's volumes, each at most once, because thousands of variables may refer to one file."""

    def __init__(self, pod: v1.Pod, pod_volumes: kubecontainer.VolumeMap) -> None:
        self._pod = pod
        self._pod_volumes = pod_volumes
        # `_files` holds the files that have been read, by the volume's path on the host and the path in the volume.
        # `_size` is their total size in bytes.
        self._files: dict[tuple[str, str], envutil.EnvFile] = {}
        self._size = 0

    def value(self, selector: v1.FileKeySelector) -> str | None:
        """Return the variable from a file in one of the pod's volumes; None if it is optional and does not exist.

        Raise ValueError on failure.
        """
        if not features.feature_gate.enabled(features.ENV_FILES):
            return ""
        volume = self._pod_volumes.get(selector.volume_name)
        if volume is None or volume.mounter is None:
            raise ValueError(f'cannot find the volume "{selector.volume_name}" referenced by FileKeyRef')
        try:
            host_path = volumeutil.get_path(volume.mounter)
        except ValueError as err:
            raise ValueError(f'failed to get host path for volume "{selector.volume_name}": {err}') from err
        path = os.path.join(host_path, selector.path)
        try:
            value = self._file(host_path, selector.path).get(selector.key)
        except (OSError, ValueError) as err:
            klog.error_s(err, "Failed to parse env file", pod=klog.kobj(self._pod), path=path)
            # The message leaves out the details, because they would reveal the content of the node's files.
            raise ValueError("couldn't parse env file") from err
        if value:
            return value
        if selector.optional:
            return None
        raise ValueError(f'environment variable key "{selector.key}" not found in file "{path}"')

    def _file(self, root: str, path: str) -> envutil.EnvFile:
        file = self._files.get((root, path))
        if file is None:
            file = self._files[root, path] = _parse_env_in_root(root, path)
            self._size += file.size
            if self._size > MAX_FILES:
                raise ValueError(f"environment variable files together are larger than {MAX_FILES} bytes")
        return file


def _parse_env_in_root(root: str, path: str) -> envutil.EnvFile:
    """Parse a file that a container wrote and may replace at any moment.

    DIVERGES (safer): the kubelet resolves the path by opening it, and reads the file that it opened.
    Go: pkg/kubelet/kubelet_pods.go, (*Kubelet).makeEnvironmentVariables: the Go kubelet resolves the path first, and
    opens the resulting name afterwards.
    Why: a container that replaces a directory by a link between the two steps would get the content of a file of the
    node.
    Test: environment_test.py:test_directory_that_becomes_a_link_leads_to_no_file_of_the_node
    """
    handle = securejoin.open_joined(root, path)
    try:
        return envutil.parse_env(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)
