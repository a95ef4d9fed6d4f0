"""A lease that a component renews to show that it lives.

Go: k8s.io/component-helpers/apimachinery/lease
"""

from pkg.component_helpers.apimachinery.lease.controller import Controller, LeaseUpdateError, ProcessLeaseFunc

__all__ = ["Controller", "LeaseUpdateError", "ProcessLeaseFunc"]
