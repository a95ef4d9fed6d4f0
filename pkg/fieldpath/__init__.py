"""Read fields of API objects by path.

Go: pkg/fieldpath
"""

from pkg.fieldpath.fieldpath import (
    extract_field_path_as_string,
    format_map,
    split_maybe_subscripted_path,
)

__all__ = [
    "extract_field_path_as_string",
    "format_map",
    "split_maybe_subscripted_path",
]
