"""Create pods that inspect their volumes, and the API objects that volumes are made of."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from kubernetes.client import ApiClient, ApiException, AuthenticationV1Api, V1TokenReviewStatus

from framework.cluster_client import TIMEOUT, Namespace, terminated
from framework.pod_ways import Pods
from framework.pods import Manifest, pod, shell

# In scripts, `files DIR` writes a line for each file below a directory. It shows the targets of links, not the links
# themselves, and leaves out the directory in which the kubelet keeps the targets.
FILES = """files() {
  (cd "$1" && find . -follow -type f ! -path './..*' | sort | while read -r each; do
    echo "$(stat -L -c '%a %u:%g' "$each") $each $(base64 -w 0 "$each" || echo unreadable)"
  done)
}; """


@dataclass(frozen=True)
class File:
    """Describe a file as a container sees it: content, mode in chmod's format, and owner as `user:group`."""

    content: bytes
    mode: str = "644"
    owner: str = "0:0"


def files(text: str) -> dict[str, File]:
    """Parse the output of the shell function `files`, and return the files by their paths below the directory."""
    found = {}
    for line in text.splitlines():
        mode, owner, path, *content = line.split(" ")
        found[path.removeprefix("./")] = File(base64.b64decode("".join(content)), mode, owner)
    return found


def looker(script: str, name: str = "main", **fields: object) -> dict[str, Any]:
    """Return a container whose termination message is the output of its script, which may use `files`."""
    return shell(f"{FILES}{{ {script}; }} > /dev/termination-log 2>&1", name, **fields)


def once(name: str, *containers: dict[str, Any], **spec: Any) -> Manifest:
    """Return a pod whose containers do not restart."""
    return pod(name, *containers, restartPolicy="Never", **spec)


def told(pods: Pods | Namespace, name: str, container: str = "main", timeout: float = TIMEOUT) -> str:
    """Return a container's termination message, once the container has terminated successfully."""
    found = pods.wait_for(name, "told", lambda found: terminated(found, container), timeout)
    ended = terminated(found, container)
    assert ended is not None
    assert ended.exit_code == 0, ended
    return ended.message or ""


def mounted(name: str, path: str, **fields: object) -> dict[str, Any]:
    """Return a volume mount for the list of a container."""
    return {"name": name, "mountPath": path, **fields}


def put_config_map(
    namespace: Namespace,
    name: str,
    data: Mapping[str, str],
    binary_data: Mapping[str, bytes] | None = None,
    immutable: bool | None = None,
) -> None:
    """Create or replace a config map."""
    binary = encoded(binary_data or {})
    made = {"metadata": {"name": name}, "data": data, "binaryData": binary, "immutable": immutable}
    core = namespace.core
    _put(core.create_namespaced_config_map, core.replace_namespaced_config_map, namespace, made)


def put_secret(namespace: Namespace, name: str, data: Mapping[str, bytes], immutable: bool | None = None) -> None:
    """Create or replace a secret."""
    made = {"metadata": {"name": name}, "data": encoded(data), "immutable": immutable}
    core = namespace.core
    _put(core.create_namespaced_secret, core.replace_namespaced_secret, namespace, made)


def _put(
    create: Callable[..., object], replace: Callable[..., object], namespace: Namespace, made: Mapping[str, Any]
) -> None:
    try:
        create(namespace.name, made)
    except ApiException as err:
        if err.status != HTTPStatus.CONFLICT:
            raise
        replace(made["metadata"]["name"], namespace.name, made)


def encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    """Return the bytes encoded for JSON."""
    return {key: base64.b64encode(value).decode() for key, value in data.items()}


def review(api: ApiClient, token: str, *audiences: str) -> V1TokenReviewStatus:
    """Return the API server's review of a token."""
    asked = {"spec": {"token": token, "audiences": list(audiences)}}
    return AuthenticationV1Api(api).create_token_review(asked).status
