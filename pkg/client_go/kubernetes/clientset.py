"""Provide clients of all API groups over one connection pool.

Go: k8s.io/client-go/kubernetes/clientset.go
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import msgspec

from pkg import golang
from pkg.api.authentication import v1 as authenticationv1
from pkg.api.authorization import v1 as authorizationv1
from pkg.api.certificates import v1 as certificatesv1
from pkg.api.certificates import v1beta1 as certificatesv1beta1
from pkg.api.coordination import v1 as coordinationv1
from pkg.api.core import v1
from pkg.api.node import v1 as nodev1
from pkg.api.resource import v1 as resourcev1
from pkg.api.storage import v1 as storagev1
from pkg.apimachinery.runtime import codec
from pkg.client_go import rest
from pkg.client_go.kubernetes import resources
from pkg.client_go.kubernetes.typed import ResourceClient

T = TypeVar("T")


class _Factory(Protocol):
    """Define how to make the client of one resource in one namespace ("" means all)."""

    def __call__(self, resource: resources.Resource[T], namespace: str) -> ResourceClient[T]: ...


class _Group:
    def __init__(self, factory: _Factory) -> None:
        self._client = factory


class CoreV1(_Group):
    def pods(self, namespace: str) -> ResourceClient[v1.Pod]:
        return self._client(resources.PODS, namespace)

    def nodes(self) -> ResourceClient[v1.Node]:
        return self._client(resources.NODES, "")

    def services(self, namespace: str) -> ResourceClient[v1.Service]:
        return self._client(resources.SERVICES, namespace)

    def events(self, namespace: str) -> ResourceClient[v1.Event]:
        return self._client(resources.EVENTS, namespace)

    def config_maps(self, namespace: str) -> ResourceClient[v1.ConfigMap]:
        return self._client(resources.CONFIG_MAPS, namespace)

    def secrets(self, namespace: str) -> ResourceClient[v1.Secret]:
        return self._client(resources.SECRETS, namespace)

    def service_accounts(self, namespace: str) -> ResourceClient[v1.ServiceAccount]:
        return self._client(resources.SERVICE_ACCOUNTS, namespace)

    def persistent_volumes(self) -> ResourceClient[v1.PersistentVolume]:
        return self._client(resources.PERSISTENT_VOLUMES, "")

    def persistent_volume_claims(self, namespace: str) -> ResourceClient[v1.PersistentVolumeClaim]:
        return self._client(resources.PERSISTENT_VOLUME_CLAIMS, namespace)

    def namespaces(self) -> ResourceClient[v1.Namespace]:
        return self._client(resources.NAMESPACES, "")


class CoordinationV1(_Group):
    def leases(self, namespace: str) -> ResourceClient[coordinationv1.Lease]:
        return self._client(resources.LEASES, namespace)


class CertificatesV1(_Group):
    def certificate_signing_requests(self) -> ResourceClient[certificatesv1.CertificateSigningRequest]:
        return self._client(resources.CERTIFICATE_SIGNING_REQUESTS, "")


class CertificatesV1beta1(_Group):
    def cluster_trust_bundles(self) -> ResourceClient[certificatesv1beta1.ClusterTrustBundle]:
        return self._client(resources.CLUSTER_TRUST_BUNDLES, "")


class StorageV1(_Group):
    def csi_drivers(self) -> ResourceClient[storagev1.CSIDriver]:
        return self._client(resources.CSI_DRIVERS, "")

    def csi_nodes(self) -> ResourceClient[storagev1.CSINode]:
        return self._client(resources.CSI_NODES, "")

    def volume_attachments(self) -> ResourceClient[storagev1.VolumeAttachment]:
        return self._client(resources.VOLUME_ATTACHMENTS, "")

    def storage_classes(self) -> ResourceClient[storagev1.StorageClass]:
        return self._client(resources.STORAGE_CLASSES, "")


class ResourceV1(_Group):
    def resource_claims(self, namespace: str) -> ResourceClient[resourcev1.ResourceClaim]:
        return self._client(resources.RESOURCE_CLAIMS, namespace)

    def resource_slices(self) -> ResourceClient[resourcev1.ResourceSlice]:
        return self._client(resources.RESOURCE_SLICES, "")


class NodeV1(_Group):
    def runtime_classes(self) -> ResourceClient[nodev1.RuntimeClass]:
        return self._client(resources.RUNTIME_CLASSES, "")


class AuthenticationV1(_Group):
    def token_reviews(self) -> ResourceClient[authenticationv1.TokenReview]:
        return self._client(resources.TOKEN_REVIEWS, "")


class AuthorizationV1(_Group):
    def subject_access_reviews(self) -> ResourceClient[authorizationv1.SubjectAccessReview]:
        return self._client(resources.SUBJECT_ACCESS_REVIEWS, "")


class VersionInfo(msgspec.Struct, kw_only=True, rename="camel"):
    """Hold the response of /version."""

    major: str = ""
    minor: str = ""
    git_version: str = ""
    platform: str = ""


class APIResource(msgspec.Struct, kw_only=True, rename="camel"):
    """Describe one kind of object."""

    name: str = ""
    namespaced: bool = False
    kind: str = ""


class APIResourceList(msgspec.Struct, kw_only=True, rename="camel"):
    """List the resources of one version of an API group."""

    group_version: str = ""
    resources: list[APIResource] = []


class Discovery(Protocol):
    def server_version(self, ctx: golang.Context | None = None) -> VersionInfo:
        """Return the server's version; raise the same exceptions as a request."""
        ...

    def server_resources_for_group_version(
        self, group_version: str, ctx: golang.Context | None = None
    ) -> APIResourceList:
        """Return the resources of a version; raise apierrors.StatusError (not found) if it is not served."""
        ...


class Interface:
    """Define what a real and a fake clientset have in common.

    All methods are thread-safe.
    """

    def __init__(self, factory: _Factory, discovery: Discovery) -> None:
        self.core_v1 = CoreV1(factory)
        self.coordination_v1 = CoordinationV1(factory)
        self.certificates_v1 = CertificatesV1(factory)
        self.certificates_v1beta1 = CertificatesV1beta1(factory)
        self.storage_v1 = StorageV1(factory)
        self.node_v1 = NodeV1(factory)
        self.resource_v1 = ResourceV1(factory)
        self.authentication_v1 = AuthenticationV1(factory)
        self.authorization_v1 = AuthorizationV1(factory)
        self.discovery = discovery


class _RESTDiscovery:
    def __init__(self, rest_client: rest.RESTClient) -> None:
        self._rest_client = rest_client

    def server_version(self, ctx: golang.Context | None = None) -> VersionInfo:
        data = self._rest_client.request(ctx or golang.background(), "GET", "/version")
        return codec.decode_json(data, VersionInfo)

    def server_resources_for_group_version(
        self, group_version: str, ctx: golang.Context | None = None
    ) -> APIResourceList:
        root = "/apis" if "/" in group_version else "/api"
        data = self._rest_client.request(ctx or golang.background(), "GET", f"{root}/{group_version}")
        return codec.decode_json(data, APIResourceList)


class Clientset(Interface):
    def __init__(self, rest_client: rest.RESTClient) -> None:
        self.rest_client = rest_client

        def factory(resource: resources.Resource[Any], namespace: str) -> ResourceClient[Any]:
            return ResourceClient(rest_client, resource, namespace)

        super().__init__(factory, _RESTDiscovery(rest_client))

    def close(self) -> None:
        """Close idle connections; a connection in use is closed when its request ends."""
        self.rest_client.close_idle_connections()


def new_for_config(config: rest.Config) -> Clientset:
    """Return a clientset with its own connections and rate limiter.

    Raise ValueError or OSError, naming the field or file, if the config cannot be used.
    """
    return Clientset(rest.RESTClient(config))
