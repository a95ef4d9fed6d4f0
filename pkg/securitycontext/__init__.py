"""How a pod's and a container's security settings combine into what the runtime is told.

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
