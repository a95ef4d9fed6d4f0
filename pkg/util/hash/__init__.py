"""Hash whole objects.

Go: pkg/util/hash
"""

from pkg.util.hash.hash import FNV128a, deep_hash_object, fnv32a

__all__ = ["FNV128a", "deep_hash_object", "fnv32a"]
