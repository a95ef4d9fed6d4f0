"""Renew a lease to show that a component is alive.

Go: k8s.io/component-helpers/apimachinery/lease
"""

from pkg.component_helpers.apimachinery.lease.controller import Controller, LeaseUpdateError, ProcessLeaseFunc

__all__ = ["Controller", "LeaseUpdateError", "ProcessLeaseFunc"]
