"""Make and apply strategic merge patches, which merge lists by the merge keys of their types.

Go: k8s.io/apimachinery/pkg/util/strategicpatch
"""

from pkg.apimachinery.util.strategicpatch.meta import PatchMeta
from pkg.apimachinery.util.strategicpatch.patch import (
    create_two_way_merge_map_patch,
    create_two_way_merge_patch,
    strategic_merge_map_patch,
    strategic_merge_patch,
)

__all__ = [
    "PatchMeta",
    "create_two_way_merge_map_patch",
    "create_two_way_merge_patch",
    "strategic_merge_map_patch",
    "strategic_merge_patch",
]
