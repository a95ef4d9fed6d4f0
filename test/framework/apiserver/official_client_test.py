"""Test that the models of the official client, the package `kubernetes`, accept the server's responses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import kubernetes.client
import pytest
from kubernetes import config
from kubernetes.client import (
    ApiClient,
    ApiException,
    AppsV1Api,
    CoreV1Api,
    RbacAuthorizationV1Api,
    StorageV1Api,
    V1Pod,
)
from kubernetes.client.exceptions import NotFoundException
from kubernetes.watch import Watch

from framework.apiserver import APIServer, resources

NAMESPACE = "default"
POD = {"metadata": {"name": "web"}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "nginx"}]}}


@pytest.fixture
def api() -> Iterator[APIServer]:
    with APIServer() as server:
        yield server


@pytest.fixture
def client(api: APIServer, tmp_path: Path) -> ApiClient:
    api.kubeconfig(tmp_path / "kubeconfig")
    return config.new_client_from_config(str(tmp_path / "kubeconfig"))


@pytest.fixture
def core(client: ApiClient) -> CoreV1Api:
    return CoreV1Api(client)


def lister(resource: resources.Resource) -> tuple[str, str]:
    """Return the names of the client's class and method that list a resource."""
    group = resource.group.removesuffix(".k8s.io") or "core"
    words = [*group.split("."), resource.version]
    kind = re.sub("(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", resource.kind).lower()
    everywhere = "_for_all_namespaces" if resource.namespaced else ""
    return "".join(word.capitalize() for word in words) + "Api", f"list_{kind}{everywhere}"


def test_each_kind_is_listed(client: ApiClient) -> None:
    for resource in resources.RESOURCES:
        # The client has no classes for the resources of other servers.
        if "list" in resource.verbs and resource.group not in resources.AGGREGATED:
            class_name, method = lister(resource)
            found = getattr(getattr(kubernetes.client, class_name)(client), method)()
            assert found.kind == f"{resource.kind}List"


def test_pod_that_was_read_can_be_written_back(core: CoreV1Api) -> None:
    core.create_namespaced_pod(NAMESPACE, POD)
    pod = core.read_namespaced_pod("web", NAMESPACE)
    pod.metadata.labels = {"a": "b"}

    core.replace_namespaced_pod("web", NAMESPACE, pod)

    found = core.read_namespaced_pod("web", NAMESPACE)
    assert isinstance(found, V1Pod)
    assert found.metadata.labels == {"a": "b"}
    assert (found.spec, found.status.phase) == (pod.spec, "Pending")


def test_patches(core: CoreV1Api) -> None:
    """The server accepts a dict as a strategic merge patch, a list as a JSON patch, and other patches by their type."""
    core.create_namespaced_pod(NAMESPACE, POD)

    core.patch_namespaced_pod("web", NAMESPACE, {"spec": {"containers": [{"name": "c", "image": "busybox"}]}})
    core.patch_namespaced_pod("web", NAMESPACE, [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}])
    merge = "application/merge-patch+json"
    found = core.patch_namespaced_pod("web", NAMESPACE, {"metadata": {"labels": {"c": "d"}}}, _content_type=merge)

    assert [each.image for each in found.spec.containers] == ["busybox"]
    assert found.metadata.labels == {"a": "b", "c": "d"}


def test_patch_of_a_pod_template(client: ApiClient) -> None:
    """The lists in a deployment's metadata and template merge, although nodes use no deployments."""
    deployments = AppsV1Api(client)
    labels = {"app": "web"}
    containers = [{"name": name, "image": "nginx"} for name in ("one", "two")]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    made = {"metadata": {"name": "web", "finalizers": ["a/a"]}, "spec": spec}
    deployments.create_namespaced_deployment(NAMESPACE, made)

    other = {"spec": {"containers": [{"name": "two", "image": "busybox"}]}}
    patch = {"metadata": {"finalizers": ["b/b"]}, "spec": {"template": other}}
    found = deployments.patch_namespaced_deployment("web", NAMESPACE, patch)

    images = {each.name: each.image for each in found.spec.template.spec.containers}
    assert images == {"one": "nginx", "two": "busybox"}
    assert sorted(found.metadata.finalizers) == ["a/a", "b/b"]


def test_patch_of_a_list_that_does_not_merge(client: ApiClient) -> None:
    roles = RbacAuthorizationV1Api(client)
    pods, nodes = ([{"apiGroups": [""], "resources": [each], "verbs": ["get"]}] for each in ("pods", "nodes"))
    roles.create_namespaced_role(NAMESPACE, {"metadata": {"name": "reader"}, "rules": pods})

    found = roles.patch_namespaced_role("reader", NAMESPACE, {"rules": nodes})

    assert [each.resources for each in found.rules] == [["nodes"]]


def test_deletions_answer_the_object_or_a_status(client: ApiClient, core: CoreV1Api) -> None:
    """The response to a deletion has the form that the client expects.

    The client refuses a status in place of an object with a spec.
    """
    storage = StorageV1Api(client)
    storage.create_csi_driver({"metadata": {"name": "d"}, "spec": {"attachRequired": False}})
    core.create_namespaced_service_account(NAMESPACE, {"metadata": {"name": "s"}})
    core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "m"}})

    assert storage.delete_csi_driver("d").spec.attach_required is False
    assert core.delete_namespaced_service_account("s", NAMESPACE).metadata.name == "s"
    assert core.delete_namespaced_config_map("m", NAMESPACE).status == "Success"


def test_pages_of_a_list(core: CoreV1Api) -> None:
    for name in "abc":
        core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": name}})

    first = core.list_namespaced_config_map(NAMESPACE, limit=2)
    second = core.list_namespaced_config_map(NAMESPACE, limit=2, _continue=first.metadata._continue)

    assert [[each.metadata.name for each in page.items] for page in (first, second)] == [["a", "b"], ["c"]]
    assert first.metadata.remaining_item_count == 1 and not second.metadata._continue


def test_watch_from_a_version_on(api: APIServer, core: CoreV1Api) -> None:
    core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "a"}})
    version = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    core.delete_namespaced_config_map("a", NAMESPACE)
    since = {"resource_version": version, "timeout_seconds": 1}

    (event,) = Watch().stream(core.list_namespaced_config_map, NAMESPACE, **since)

    assert (event["type"], event["object"].metadata.name) == ("DELETED", "a")
    api.compact()
    with pytest.raises(ApiException, match="Expired: too old resource version") as raised:
        list(Watch().stream(core.list_namespaced_config_map, NAMESPACE, **since))
    assert raised.value.status == HTTPStatus.GONE


def test_errors(core: CoreV1Api) -> None:
    core.create_namespaced_pod(NAMESPACE, POD)

    with pytest.raises(NotFoundException):
        core.read_namespaced_pod("none", NAMESPACE)
    with pytest.raises(ApiException) as raised:
        core.create_namespaced_pod(NAMESPACE, POD)

    status = json.loads(raised.value.body)
    assert (raised.value.status, raised.value.reason) == (HTTPStatus.CONFLICT, "Conflict")
    assert (status["reason"], status["message"]) == ("AlreadyExists", 'pods "web" already exists')
