"""Defaults of the core API group.

Go: pkg/apis/core/v1
"""

from pkg.apis.core.v1.defaults import set_defaults_pod, set_defaults_pod_spec, set_object_defaults_pod

__all__ = ["set_defaults_pod", "set_defaults_pod_spec", "set_object_defaults_pod"]
