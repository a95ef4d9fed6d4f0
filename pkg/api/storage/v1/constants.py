"""Define the well-known values of the storage API group, in Go's order of declaration.

Go: k8s.io/api/storage/v1/types.go
"""

READ_WRITE_ONCE_WITH_FS_TYPE_FS_GROUP_POLICY = "ReadWriteOnceWithFSType"
FILE_FS_GROUP_POLICY = "File"
NONE_FS_GROUP_POLICY = "None"
VOLUME_LIFECYCLE_PERSISTENT = "Persistent"
VOLUME_LIFECYCLE_EPHEMERAL = "Ephemeral"
