"""API objects of a node without API server: what its manifest folder holds beside pods.

The folder's source (kubelet/config/file.py) puts config maps, secrets, claims and volumes into an ObjectStore; the
managers here answer from it where others ask an API server, so that nothing else need know where objects come from.
Go has nothing like it.
"""

from kubelet.standalone.managers import ConfigMapManager, SecretManager
from kubelet.standalone.objects import Changed, ObjectStore, refers_to
from kubelet.standalone.volumes import Volumes

__all__ = ["Changed", "ConfigMapManager", "ObjectStore", "SecretManager", "Volumes", "refers_to"]
