"""Reload certificates when their files change.

Go: k8s.io/apiserver/pkg/server/dynamiccertificates
"""

from pkg.apiserver.server.dynamiccertificates.dynamic_cafile_content import DynamicFileCAContent
from pkg.apiserver.server.dynamiccertificates.dynamic_serving_content import DynamicCertKeyPairContent
from pkg.apiserver.server.dynamiccertificates.interfaces import CAContentProvider, NoCAContent

__all__ = ["CAContentProvider", "DynamicCertKeyPairContent", "DynamicFileCAContent", "NoCAContent"]
