"""Where pods come from: files, a URL, the API server; and how they become one stream of changes.

Each source sends its full state on a channel of its own. PodConfig merges the sources and tells the kubelet
only what changed, in order.

Go: pkg/kubelet/config
"""

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
from kubelet.config.defaults import (
    DEFAULT_KUBELET_CHECKPOINTS_DIR_NAME,
    DEFAULT_KUBELET_CONTAINERS_DIR_NAME,
    DEFAULT_KUBELET_PLUGIN_CONTAINERS_DIR_NAME,
    DEFAULT_KUBELET_PLUGINS_DIR_NAME,
    DEFAULT_KUBELET_PLUGINS_REGISTRATION_DIR_NAME,
    DEFAULT_KUBELET_POD_RESOURCES_DIR_NAME,
    DEFAULT_KUBELET_PODS_DIR_NAME,
    DEFAULT_KUBELET_VOLUME_DEVICES_DIR_NAME,
    DEFAULT_KUBELET_VOLUME_SUBPATHS_DIR_NAME,
    DEFAULT_KUBELET_VOLUMES_DIR_NAME,
    KUBELET_CONTAINERS_SHARED_SELINUX_LABEL,
    KUBELET_PLUGINS_DIR_SELINUX_LABEL,
)
from kubelet.config.file import SourceFile, new_source_file
from kubelet.config.http import SourceURL, new_source_url
from kubelet.config.sources import SourcesImpl, SourcesReady, SourcesReadyFn

__all__ = [
    "DEFAULT_KUBELET_CHECKPOINTS_DIR_NAME",
    "DEFAULT_KUBELET_CONTAINERS_DIR_NAME",
    "DEFAULT_KUBELET_PLUGINS_DIR_NAME",
    "DEFAULT_KUBELET_PLUGINS_REGISTRATION_DIR_NAME",
    "DEFAULT_KUBELET_PLUGIN_CONTAINERS_DIR_NAME",
    "DEFAULT_KUBELET_PODS_DIR_NAME",
    "DEFAULT_KUBELET_POD_RESOURCES_DIR_NAME",
    "DEFAULT_KUBELET_VOLUMES_DIR_NAME",
    "DEFAULT_KUBELET_VOLUME_DEVICES_DIR_NAME",
    "DEFAULT_KUBELET_VOLUME_SUBPATHS_DIR_NAME",
    "KUBELET_CONTAINERS_SHARED_SELINUX_LABEL",
    "KUBELET_PLUGINS_DIR_SELINUX_LABEL",
    "POD_CONFIG_NOTIFICATION_INCREMENTAL",
    "POD_CONFIG_NOTIFICATION_SNAPSHOT",
    "POD_CONFIG_NOTIFICATION_SNAPSHOT_AND_UPDATES",
    "POD_CONFIG_NOTIFICATION_UNKNOWN",
    "PodConfig",
    "PodConfigNotificationMode",
    "PodStartupSLIObserver",
    "PodStorage",
    "SourceFile",
    "SourceURL",
    "SourcesImpl",
    "SourcesReady",
    "SourcesReadyFn",
    "new_source_file",
    "new_source_url",
]
