"""Provide API objects on a node without an API server, from its manifest directory.

The directory's source (kubelet/config/file.py) puts ConfigMaps, Secrets, claims and volumes into an ObjectStore. The
managers in this package read from the store where others ask an API server, so that no other component needs to know
where objects come from. Go has no counterpart.
"""

from kubelet.standalone.managers import ConfigMapManager, SecretManager
from kubelet.standalone.objects import Changed, ObjectStore, refers_to
from kubelet.standalone.volumes import Volumes

__all__ = ["Changed", "ConfigMapManager", "ObjectStore", "SecretManager", "Volumes", "refers_to"]
