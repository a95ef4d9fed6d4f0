"""What goes wrong with volumes of CSI drivers. Whether it has changed a volume, errors of pkg/volume/util/types say.

Go: none; there these are errors without a type.
"""

from __future__ import annotations


class CSIError(Exception):
    """Something that a volume needs is not to be had now; it is tried again."""


class UnknownDriverError(CSIError):
    """The driver has not registered, or not yet."""


class DriverCallError(CSIError):
    """The driver, or whoever knows what it can do, has not answered as is needed."""


class NotAttachedError(CSIError):
    """The volume is not attached to the node, or nobody knows."""


class SecretError(CSIError):
    """The API server does not give a secret, or what it holds is no text."""


class NoAPIServerError(CSIError):
    """There is no API server to ask, as in standalone mode."""


class CSINodeError(CSIError):
    """The node has no CSINode yet."""
