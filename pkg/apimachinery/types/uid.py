"""The uid of an object.

Go: k8s.io/apimachinery/pkg/types/uid.go
"""

from typing import NewType

# Unique across the whole cluster and for all time, unlike a name.
UID = NewType("UID", str)
