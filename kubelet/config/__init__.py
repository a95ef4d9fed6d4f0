"""Read pods from files, a URL and the API server, and merge them into one stream of changes.

Each source sends its full state on a channel of its own. PodConfig merges the sources and sends only the changes to the
kubelet, in order.

Go: pkg/kubelet/config
"""

from kubelet.config.apiserver import new_source_apiserver
from kubelet.config.config import (
    POD_CONFIG_NOTIFICATION_INCREMENTAL,
    POD_CONFIG_NOTIFICATION_SNAPSHOT,
    POD_CONFIG_NOTIFICATION_SNAPSHOT_AND_UPDATES,
    POD_CONFIG_NOTIFICATION_UNKNOWN,
    PodConfig,
    PodConfigNotificationMode,
    PodStartupSLIObserver,
    PodStorage,
)
from kubelet.config.file import SourceFile, new_source_file
from kubelet.config.http import SourceURL, new_source_url
from kubelet.config.objects import APIObject, ObjectStore
from kubelet.config.sources import SourcesImpl, SourcesReady, SourcesReadyFn

__all__ = [
    "POD_CONFIG_NOTIFICATION_INCREMENTAL",
    "POD_CONFIG_NOTIFICATION_SNAPSHOT",
    "POD_CONFIG_NOTIFICATION_SNAPSHOT_AND_UPDATES",
    "POD_CONFIG_NOTIFICATION_UNKNOWN",
    "APIObject",
    "ObjectStore",
    "PodConfig",
    "PodConfigNotificationMode",
    "PodStartupSLIObserver",
    "PodStorage",
    "SourceFile",
    "SourceURL",
    "SourcesImpl",
    "SourcesReady",
    "SourcesReadyFn",
    "new_source_apiserver",
    "new_source_file",
    "new_source_url",
]
