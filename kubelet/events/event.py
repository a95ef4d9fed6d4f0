"""Define the reasons of the kubelet's events.

Go: pkg/kubelet/events/event.go
"""

# The following events are about containers.
CREATED_CONTAINER = "Created"
STARTED_CONTAINER = "Started"
FAILED_TO_CREATE_CONTAINER = "Failed"
FAILED_TO_START_CONTAINER = "Failed"
KILLING_CONTAINER = "Killing"
PREEMPT_CONTAINER = "Preempting"
BACK_OFF_START_CONTAINER = "BackOff"
EXCEEDED_GRACE_PERIOD = "ExceededGracePeriod"

# The following events are about pods.
FAILED_TO_KILL_POD = "FailedKillPod"
FAILED_TO_CREATE_POD_CONTAINER = "FailedCreatePodContainer"
FAILED_TO_MAKE_POD_DATA_DIRECTORIES = "Failed"
NETWORK_NOT_READY = "NetworkNotReady"
# Go lacks this reason: it admits or rejects a pod at once.
WAITING_FOR_RESOURCES = "WaitingForResources"
RESIZE_DEFERRED = "ResizeDeferred"
RESIZE_INFEASIBLE = "ResizeInfeasible"
RESIZE_COMPLETED = "ResizeCompleted"
RESIZE_STARTED = "ResizeStarted"
RESIZE_ERROR = "ResizeError"
FAILED_NODE_DECLARED_FEATURES_CHECK = "FailedNodeDeclaredFeaturesCheck"

# The following events are about images.
PULLING_IMAGE = "Pulling"
PULLED_IMAGE = "Pulled"
FAILED_TO_PULL_IMAGE = "Failed"
FAILED_TO_INSPECT_IMAGE = "InspectFailed"
ERR_IMAGE_NEVER_PULL_POLICY = "ErrImageNeverPull"
BACK_OFF_PULL_IMAGE = "BackOff"

# The following events are about the kubelet and its node.
NODE_READY = "NodeReady"
NODE_NOT_READY = "NodeNotReady"
NODE_SCHEDULABLE = "NodeSchedulable"
NODE_NOT_SCHEDULABLE = "NodeNotSchedulable"
STARTING_KUBELET = "Starting"
KUBELET_SETUP_FAILED = "KubeletSetupFailed"
FAILED_ATTACH_VOLUME = "FailedAttachVolume"
FAILED_MOUNT_VOLUME = "FailedMount"
VOLUME_RESIZE_FAILED = "VolumeResizeFailed"
VOLUME_RESIZE_SUCCESS = "VolumeResizeSuccessful"
FILE_SYSTEM_RESIZE_FAILED = "FileSystemResizeFailed"
VOLUME_PERMISSION_CHANGE_IN_PROGRESS = "VolumePermissionChangeInProgress"
FILE_SYSTEM_RESIZE_SUCCESS = "FileSystemResizeSuccessful"
FAILED_MAP_VOLUME = "FailedMapVolume"
WARN_ALREADY_MOUNTED_VOLUME = "AlreadyMountedVolume"
SUCCESSFUL_ATTACH_VOLUME = "SuccessfulAttachVolume"
SUCCESSFUL_MOUNT_VOLUME = "SuccessfulMountVolume"
NODE_REBOOTED = "Rebooted"
NODE_SHUTDOWN = "Shutdown"
CONTAINER_GC_FAILED = "ContainerGCFailed"
IMAGE_GC_FAILED = "ImageGCFailed"
FAILED_NODE_ALLOCATABLE_ENFORCEMENT = "FailedNodeAllocatableEnforcement"
SUCCESSFUL_NODE_ALLOCATABLE_ENFORCEMENT = "NodeAllocatableEnforced"
SANDBOX_CHANGED = "SandboxChanged"
FAILED_CREATE_POD_SANDBOX = "FailedCreatePodSandBox"
FAILED_STATUS_POD_SANDBOX = "FailedPodSandBoxStatus"
FAILED_MOUNT_ON_FILESYSTEM_MISMATCH = "FailedMountOnFilesystemMismatch"
FAILED_PREPARE_DYNAMIC_RESOURCES = "FailedPrepareDynamicResources"
POSSIBLE_MEMORY_BACKED_VOLUMES_ON_DISK = "PossibleMemoryBackedVolumesOnDisk"
CGROUP_V1 = "CgroupV1"
# Go lacks these two reasons.
FAILED_UNMOUNT_VOLUME = "FailedUnmount"
ORPHANED_POD_DIRECTORY = "OrphanedPodDirectory"

# The image manager records the following events.
INVALID_IMAGE_ID = "InvalidImageID"
INVALID_DISK_CAPACITY = "InvalidDiskCapacity"
FREE_DISK_SPACE_FAILED = "FreeDiskSpaceFailed"

# The prober records the following events.
CONTAINER_UNHEALTHY = "Unhealthy"
CONTAINER_PROBE_WARNING = "ProbeWarning"

# Pod workers record the following event.
FAILED_SYNC = "FailedSync"

# Pod sources record the following event.
FAILED_VALIDATION = "FailedValidation"

# Lifecycle hooks cause the following events.
FAILED_POST_START_HOOK = "FailedPostStartHook"
FAILED_PRE_STOP_HOOK = "FailedPreStopHook"
