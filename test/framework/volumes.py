"""Pods that look at their volumes, and the objects of the API server that volumes are made of."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from framework.cluster_client import TIMEOUT, Namespace, terminated
from framework.pod_ways import Pods
from framework.pods import Manifest, pod, shell
from pkg import golang
from pkg.api.authentication import v1 as authenticationv1
from pkg.api.core import v1
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go import kubernetes

# For scripts: `files DIR` writes a line for each file below a directory, what links lead to and not the links
# themselves, except for the directory that the kubelet keeps them in.
FILES = """files() {
  (cd "$1" && find . -follow -type f ! -path './..*' | sort | while read -r each; do
    echo "$(stat -L -c '%a %u:%g' "$each") $each $(base64 -w 0 "$each" || echo unreadable)"
  done)
}; """


@dataclass(frozen=True)
class File:
    """A file as a container sees it: its content, its mode as chmod takes it, its owner as `user:group`."""

    content: bytes
    mode: str = "644"
    owner: str = "0:0"


def files(text: str) -> dict[str, File]:
    """What the shell's `files` wrote, by the path below the directory."""
    found = {}
    for line in text.splitlines():
        mode, owner, path, *content = line.split(" ")
        found[path.removeprefix("./")] = File(base64.b64decode("".join(content)), mode, owner)
    return found


def looker(script: str, name: str = "main", **fields: object) -> dict[str, Any]:
    """A container that tells what its script prints, and ends. Its script may use `files`."""
    return shell(f"{FILES}{{ {script}; }} > /dev/termination-log 2>&1", name, **fields)


def once(name: str, *containers: dict[str, Any], **spec: Any) -> Manifest:
    """A pod whose containers are not started again."""
    return pod(name, *containers, restartPolicy="Never", **spec)


def told(pods: Pods | Namespace, name: str, container: str = "main", timeout: float = TIMEOUT) -> str:
    """What a container has told, once it has ended."""
    found = pods.wait_for(name, "told", lambda found: terminated(found, container), timeout)
    ended = terminated(found, container)
    assert ended is not None
    assert ended.exit_code == 0, ended
    return ended.message


def mounted(name: str, path: str, **fields: object) -> dict[str, Any]:
    """A mount, as a container's list has it."""
    return {"name": name, "mountPath": path, **fields}


# Objects.


def put_config_map(
    namespace: Namespace,
    name: str,
    data: Mapping[str, str],
    binary_data: Mapping[str, bytes] | None = None,
    immutable: bool | None = None,
) -> None:
    """Make a config map, or change it."""
    metadata = metav1.ObjectMeta(name=name, namespace=namespace.name)
    made = v1.ConfigMap(metadata=metadata, data=dict(data), binary_data=dict(binary_data or {}), immutable=immutable)
    _put(namespace.client.core_v1.config_maps(namespace.name), made)


def put_secret(namespace: Namespace, name: str, data: Mapping[str, bytes], immutable: bool | None = None) -> None:
    """Make a secret, or change it."""
    metadata = metav1.ObjectMeta(name=name, namespace=namespace.name)
    made = v1.Secret(metadata=metadata, data=dict(data), immutable=immutable)
    _put(namespace.client.core_v1.secrets(namespace.name), made)


def _put(client: kubernetes.ResourceClient[Any], made: v1.ConfigMap | v1.Secret) -> None:
    try:
        client.create(golang.background(), made)
    except apierrors.StatusError as err:
        if not apierrors.is_already_exists(err):
            raise
        client.update(golang.background(), made)


# Tokens.


def review(client: kubernetes.Clientset, token: str, *audiences: str) -> authenticationv1.TokenReviewStatus:
    """What the API server says of a token."""
    asked = authenticationv1.TokenReview(spec=authenticationv1.TokenReviewSpec(token=token, audiences=list(audiences)))
    return client.authentication_v1.token_reviews().create(golang.background(), asked).status
