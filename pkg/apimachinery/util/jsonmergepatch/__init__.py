"""Apply JSON merge patches (RFC 7386).

Go: k8s.io/apimachinery/pkg/util/jsonmergepatch, gopkg.in/evanphx/json-patch.v4 (MergePatch)
"""

from pkg.apimachinery.util.jsonmergepatch.patch import merge_map_patch

__all__ = ["merge_map_patch"]
