"""Where the variables of a container's environment come from that its spec does not spell out.

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

# Characters of a variable's name that messages show.
_SHOWN = 100
# Bytes that the kernel counts for each variable beside its text.
_POINTER = 8
# Bytes of all files that variables of one environment are read from.
MAX_FILES = 16 << 20


class Variables:
    """The environment of one container, which is no larger than the kernel lets a program have.

    DIVERGES (safer): a larger environment is refused, and the container's status names the variable.
    Go: pkg/kubelet/kubelet_pods.go, (*Kubelet).makeEnvironmentVariables: an environment of any size is built and sent.
    Why: small references expand to gigabytes of memory, and the kernel's refusal comes only when the container starts.
    Test: environment_test.py:test_variable_that_the_kernel_just_takes,
    environment_test.py:test_environment_without_end_stays_under_96_mib
    """

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self._size = 0

    def set(self, name: str, value: str) -> None:
        """Set a variable, or replace it. Raises ValueError when it is too long, or all together are."""
        size = _length(name, value)
        if size > kubecontainer.MAX_ARGUMENT_LENGTH:
            limit = kubecontainer.MAX_ARGUMENT_LENGTH
            raise ValueError(f'environment variable "{name[:_SHOWN]}" is too long: {size} bytes, of {limit} at most')
        if name in self.values:
            self._size -= _length(name, self.values[name]) + _POINTER
        self._size += size + _POINTER
        if self._size > kubecontainer.MAX_ARGUMENTS_LENGTH:
            limit = kubecontainer.MAX_ARGUMENTS_LENGTH
            raise ValueError(f'environment is too large: {limit} bytes at most, exceeded by variable "{name[:_SHOWN]}"')
        self.values[name] = value

    def set_expanded(self, name: str, text: str, mapping: Callable[[str], str]) -> None:
        """Set a variable to what the text expands to. Raises as `set` does."""
        try:
            self.set(name, expansion.expand(text, mapping, kubecontainer.MAX_ARGUMENT_LENGTH))
        except expansion.TooLongError as err:
            raise ValueError(f'environment variable "{name[:_SHOWN]}" is too long: {err}') from err


def _length(name: str, value: str) -> int:
    """What the kernel counts for NAME=VALUE and the null byte."""
    return len(name.encode(errors="surrogatepass")) + len(value.encode(errors="surrogatepass")) + 2


def _last_of_each(sources: Iterable[v1.EnvFromSource]) -> Iterable[v1.EnvFromSource]:
    """Without those that come again: what they set is set again. A spec may name one config map thousands of times."""
    found: dict[bytes, v1.EnvFromSource] = {}
    for source in sources:
        key = codec.encode_json(source)
        found.pop(key, None)
        found[key] = source
    return found.values()


class APIObjects:
    """The config maps and secrets of one namespace, each read once for one environment.

    Methods raise ValueError for a key that is not there, and what the managers raise.
    """

    def __init__(self, namespace: str, config_maps: configmap.Manager | None, secrets: secret.Manager | None) -> None:
        self._namespace = namespace
        self._config_map_manager = config_maps
        self._secret_manager = secrets
        # The data of those that were read.
        self._config_maps: dict[str, Mapping[str, str]] = {}
        self._secrets: dict[str, Mapping[str, bytes]] = {}

    def set_from_sources(self, sources: Iterable[v1.EnvFromSource], env: Variables) -> None:
        """Set the variables that envFrom stands for; of equal names the last counts."""
        for source in _last_of_each(sources):
            if (config_map := source.config_map_ref) is not None:
                for key, value in (self._config_map(config_map.name, config_map.optional) or {}).items():
                    env.set(source.prefix + key, value)
            elif (reference := source.secret_ref) is not None:
                for key, secret in (self._secret(reference.name, reference.optional) or {}).items():
                    env.set(source.prefix + key, self._text(reference.name, key, secret))

    def config_map_value(self, selector: v1.ConfigMapKeySelector) -> str | None:
        """None if it is not there, and need not be."""
        data = self._config_map(selector.name, selector.optional)
        if data is None:
            return None
        if selector.key not in data and not selector.optional:
            raise ValueError(f"couldn't find key {selector.key} in ConfigMap {self._namespace}/{selector.name}")
        return data.get(selector.key)

    def secret_value(self, selector: v1.SecretKeySelector) -> str | None:
        """As config_map_value."""
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
        """The value of a key of a secret as text. Raises ValueError if it is none.

        DIVERGES (safer): a value that is not UTF-8 stops the container before the runtime is called, with the key's
        name in the container's status.
        Go: pkg/kubelet/kubelet_pods.go, (*Kubelet).makeEnvironmentVariables: any bytes become a variable, and the call
        of the runtime fails.
        Why: gRPC sends only UTF-8, and its error does not tell which variable is at fault.
        Test: environment_test.py:test_missing
        """
        try:
            return value.decode()
        except UnicodeDecodeError as err:
            raise ValueError(f"value of key {key} in Secret {self._namespace}/{name} is not UTF-8 text") from err


class Files:
    """The files of a pod's volumes, each read once for one environment, of which thousands of variables may name it."""

    def __init__(self, pod: v1.Pod, pod_volumes: kubecontainer.VolumeMap) -> None:
        self._pod = pod
        self._pod_volumes = pod_volumes
        # Those that were read, by the host's path of the volume and the path there; and their bytes.
        self._files: dict[tuple[str, str], envutil.EnvFile] = {}
        self._size = 0

    def value(self, selector: v1.FileKeySelector) -> str | None:
        """The variable in a file of one of the pod's volumes; None if it is not there, and need not be.

        Raises ValueError.
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
            # What is wrong with it tells of the node's files.
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
                raise ValueError(f"environment variable files are larger than {MAX_FILES} bytes together")
        return file


def _parse_env_in_root(root: str, path: str) -> envutil.EnvFile:
    """The file is whatever a container has put there, and may be another one at any moment.

    DIVERGES (safer): the path is resolved by opening it, and the file that was opened is the one that is read.
    Go: pkg/kubelet/kubelet_pods.go, (*Kubelet).makeEnvironmentVariables: the path is resolved first, and the resulting
    name is opened afterwards.
    Why: a container that replaces a directory by a link between the two steps would be shown a file of the node.
    Test: environment_test.py:test_directory_that_becomes_a_link_leads_to_no_file_of_the_node
    """
    handle = securejoin.open_joined(root, path)
    try:
        return envutil.parse_env(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)
