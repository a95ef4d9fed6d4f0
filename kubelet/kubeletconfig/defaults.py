"""Define the names inside the kubelet's root directory.

Go: pkg/kubelet/kubeletconfig/defaults.go
"""

DEFAULT_KUBELET_PODS_DIR_NAME = "pods"
DEFAULT_KUBELET_VOLUMES_DIR_NAME = "volumes"
DEFAULT_KUBELET_VOLUME_SUBPATHS_DIR_NAME = "volume-subpaths"
DEFAULT_KUBELET_VOLUME_DEVICES_DIR_NAME = "volumeDevices"
DEFAULT_KUBELET_PLUGINS_DIR_NAME = "plugins"
DEFAULT_KUBELET_PLUGINS_REGISTRATION_DIR_NAME = "plugins_registry"
DEFAULT_KUBELET_CONTAINERS_DIR_NAME = "containers"
DEFAULT_KUBELET_POD_RESOURCES_DIR_NAME = "pod-resources"
DEFAULT_KUBELET_CHECKPOINTS_DIR_NAME = "checkpoints"
# Files that containers may use have this SELinux label.
KUBELET_PLUGINS_DIR_SELINUX_LABEL = "system_u:object_r:container_file_t:s0"
# Go lacks this socket. Its clients may see all data of the kubelet.
DEBUG_SOCKET_NAME = "debug.sock"

# A pod with its own user namespace has this number of user and group ids.
DEFAULT_KUBELET_USER_NAMESPACES_IDS_PER_POD = 65536
