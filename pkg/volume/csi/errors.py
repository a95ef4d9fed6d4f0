"""Define the errors of CSI volumes. Errors of pkg/volume/util/types show whether a volume has changed.

Go: none; the Go kubelet uses errors without a type.
"""

from __future__ import annotations


class CSIError(Exception):
    """Signal that something that a volume needs is not available now. The operation is retried."""


class UnknownDriverError(CSIError):
    """Signal that the driver is not registered, or not registered yet."""


class DriverCallError(CSIError):
    """Signal that the driver, or a component that knows the driver's capabilities, has not responded as required."""


class NotAttachedError(CSIError):
    """Signal that the volume is not attached to the node, or that its attachment is unknown."""


class SecretError(CSIError):
    """Signal that the API server does not return a secret, or that its content is not text."""


class NoAPIServerError(CSIError):
    """Signal that there is no API server, as in standalone mode."""


class CSINodeError(CSIError):
    """Signal that the node's CSINode does not exist yet."""
