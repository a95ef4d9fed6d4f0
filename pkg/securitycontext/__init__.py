"""Combine the security settings of a pod and of a container into those for the runtime.

Go: pkg/securitycontext
"""

from pkg.securitycontext.util import (
    add_no_new_privileges,
    convert_to_runtime_masked_paths,
    convert_to_runtime_readonly_paths,
    determine_effective_run_as_user,
    determine_effective_security_context,
)

__all__ = [
    "add_no_new_privileges",
    "convert_to_runtime_masked_paths",
    "convert_to_runtime_readonly_paths",
    "determine_effective_run_as_user",
    "determine_effective_security_context",
]
