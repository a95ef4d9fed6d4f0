"""Allocate numbers of a fixed range, each to one user at a time.

Go: pkg/registry/core/service/allocator
"""

from pkg.registry.core.service.allocator.bitmap import AllocationBitmap

__all__ = ["AllocationBitmap"]
