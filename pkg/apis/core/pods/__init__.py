"""Iterate over the containers of a pod, and convert field names for the downward API.

Go: pkg/apis/core/pods
"""

from pkg.apis.core.pods.helpers import containers_with_path, convert_downward_api_field_label

__all__ = ["containers_with_path", "convert_downward_api_field_label"]
