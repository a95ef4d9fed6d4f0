"""Provide a typed client of the API server: `client.core_v1.pods(namespace).get(ctx, name)`.

Go: k8s.io/client-go/kubernetes

`resources.py` lists the resources, `typed.py` is the client of one resource, `clientset.py` combines these clients, and
`testing.py` has a clientset without a server.
"""

from pkg.client_go.kubernetes.clientset import (
    APIResource,
    APIResourceList,
    AuthenticationV1,
    AuthorizationV1,
    CertificatesV1,
    CertificatesV1beta1,
    Clientset,
    CoordinationV1,
    CoreV1,
    Discovery,
    Interface,
    NodeV1,
    ResourceV1,
    StorageV1,
    VersionInfo,
    new_for_config,
)
from pkg.client_go.kubernetes.resources import Resource
from pkg.client_go.kubernetes.typed import ResourceClient, ResourceList

__all__ = [
    "APIResource",
    "APIResourceList",
    "AuthenticationV1",
    "AuthorizationV1",
    "CertificatesV1",
    "CertificatesV1beta1",
    "Clientset",
    "CoordinationV1",
    "CoreV1",
    "Discovery",
    "Interface",
    "NodeV1",
    "Resource",
    "ResourceClient",
    "ResourceList",
    "ResourceV1",
    "StorageV1",
    "VersionInfo",
    "new_for_config",
]
