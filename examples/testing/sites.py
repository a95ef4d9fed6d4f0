"""Run an operator that serves each config map with the label `site` from a pod, and annotates it with the pod's health.

kopf run --standalone --namespace=default sites.py
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import kopf
from kubernetes import client, config

LABEL = "site"
# The config map may name another image.
IMAGE = "nginx:1"
HEALTH = "sites.example.com/health"


@kopf.on.login()
def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """Log in with the kubeconfig; a pod in a cluster would use its service account."""
    return kopf.login_with_kubeconfig(**kwargs)


def core() -> client.CoreV1Api:
    return client.CoreV1Api(config.new_client_from_config(os.environ.get("KUBECONFIG")))


def pod_for(name: str, image: str) -> dict[str, Any]:
    volumes = [{"name": "content", "configMap": {"name": name}}]
    mounts = [{"name": "content", "mountPath": "/srv"}]
    return {
        "metadata": {"name": name, "labels": {LABEL: name}},
        "spec": {"volumes": volumes, "containers": [{"name": "server", "image": image, "volumeMounts": mounts}]},
    }


@kopf.on.create("v1", "configmaps", labels={LABEL: kopf.PRESENT})
def serve(name: str | None, namespace: str | None, body: kopf.Body, **_: Any) -> None:
    """Create the pod. Deleting the config map deletes the pod."""
    data = body.get("data", {})
    if "index.html" not in data:
        kopf.warn(body, reason="NoIndex", message="a site needs an index.html")
        raise kopf.PermanentError("no index.html")
    core().create_namespaced_pod(namespace, pod_for(str(name), data.get("image", IMAGE)))


@kopf.on.delete("v1", "configmaps", labels={LABEL: kopf.PRESENT})
def stop(name: str | None, namespace: str | None, **_: Any) -> None:
    try:
        core().delete_namespaced_pod(name, namespace)
    except client.ApiException as err:
        if err.status != 404:
            raise


@kopf.on.event("v1", "pods", labels={LABEL: kopf.PRESENT})
def tell(name: str | None, namespace: str | None, status: kopf.Status, **_: Any) -> None:
    """Annotate the config map with the health of its pod."""
    health = health_of(status)
    try:
        core().patch_namespaced_config_map(name, namespace, {"metadata": {"annotations": {HEALTH: health}}})
    except client.ApiException as err:
        if err.status != 404:  # The config map is being deleted.
            raise


def health_of(status: kopf.Status) -> str:
    for reason in reasons(status):
        return reason
    conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
    return "ready" if conditions.get("Ready") == "True" else "not ready"


def reasons(status: kopf.Status) -> Iterator[str]:
    """Yield the reasons why containers wait, such as ImagePullBackOff."""
    for each in status.get("containerStatuses", []):
        waiting = each.get("state", {}).get("waiting")
        if waiting and waiting.get("reason") != "ContainerCreating":
            yield str(waiting["reason"])
