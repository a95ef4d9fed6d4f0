"""List the resources that a kubelet uses.

Go: k8s.io/client-go/kubernetes/scheme/register.go
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pkg.api.authentication import v1 as authenticationv1
from pkg.api.authorization import v1 as authorizationv1
from pkg.api.certificates import v1 as certificatesv1
from pkg.api.certificates import v1beta1 as certificatesv1beta1
from pkg.api.coordination import v1 as coordinationv1
from pkg.api.core import v1
from pkg.api.node import v1 as nodev1
from pkg.api.resource import v1 as resourcev1
from pkg.api.storage import v1 as storagev1
from pkg.client_go import rest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """Describe one kind of object and its place in the API.

    An empty group is the core group.
    """

    group: str
    version: str
    name: str
    kind: str
    namespaced: bool
    type: type[T]

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified_name(self) -> str:
        """Return the name for error messages: leases.coordination.k8s.io."""
        return f"{self.name}.{self.group}" if self.group else self.name

    def path(self, namespace: str = "", name: str = "", *subresources: str) -> str:
        """Return the URL path; raise ValueError for a name that would change the path."""
        for what, text in (("namespace", namespace), ("resource name", name)):
            if faults := rest.is_valid_path_segment_name(text):
                raise ValueError(f'invalid {what} "{text}": {", ".join(faults)}')
        prefix = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = ["namespaces", namespace] if namespace else []
        return "/".join([prefix, *scope, self.name, *([name] if name else []), *subresources])


PODS = Resource("", "v1", "pods", "Pod", True, v1.Pod)
NODES = Resource("", "v1", "nodes", "Node", False, v1.Node)
SERVICES = Resource("", "v1", "services", "Service", True, v1.Service)
EVENTS = Resource("", "v1", "events", "Event", True, v1.Event)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", True, v1.ConfigMap)
SECRETS = Resource("", "v1", "secrets", "Secret", True, v1.Secret)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, v1.ServiceAccount)
PERSISTENT_VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", False, v1.PersistentVolume)
PERSISTENT_VOLUME_CLAIMS = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, v1.PersistentVolumeClaim
)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False, v1.Namespace)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", True, coordinationv1.Lease)
CERTIFICATE_SIGNING_REQUESTS = Resource(
    "certificates.k8s.io",
    "v1",
    "certificatesigningrequests",
    "CertificateSigningRequest",
    False,
    certificatesv1.CertificateSigningRequest,
)
CLUSTER_TRUST_BUNDLES = Resource(
    "certificates.k8s.io",
    "v1beta1",
    "clustertrustbundles",
    "ClusterTrustBundle",
    False,
    certificatesv1beta1.ClusterTrustBundle,
)
CSI_DRIVERS = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False, storagev1.CSIDriver)
CSI_NODES = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", False, storagev1.CSINode)
VOLUME_ATTACHMENTS = Resource(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", False, storagev1.VolumeAttachment
)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", False, storagev1.StorageClass)
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False, nodev1.RuntimeClass)
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", True, resourcev1.ResourceClaim)
RESOURCE_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False, resourcev1.ResourceSlice)
TOKEN_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False, authenticationv1.TokenReview
)
SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "subjectaccessreviews",
    "SubjectAccessReview",
    False,
    authorizationv1.SubjectAccessReview,
)

ALL: tuple[Resource[Any], ...] = (
    PODS,
    NODES,
    SERVICES,
    EVENTS,
    CONFIG_MAPS,
    SECRETS,
    SERVICE_ACCOUNTS,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    NAMESPACES,
    LEASES,
    CERTIFICATE_SIGNING_REQUESTS,
    CLUSTER_TRUST_BUNDLES,
    CSI_DRIVERS,
    CSI_NODES,
    VOLUME_ATTACHMENTS,
    STORAGE_CLASSES,
    RUNTIME_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    TOKEN_REVIEWS,
    SUBJECT_ACCESS_REVIEWS,
)
