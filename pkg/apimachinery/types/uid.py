"""Represent the UID of an object.

Go: k8s.io/apimachinery/pkg/types/uid.go
"""

from typing import NewType

# Unlike a name, a UID is unique across the whole cluster and for all time.
UID = NewType("UID", str)
