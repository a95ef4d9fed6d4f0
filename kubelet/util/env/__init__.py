"""Files of environment variables.

Go: pkg/kubelet/util/env
"""

from kubelet.util.env.env_util import parse_env

__all__ = ["parse_env"]
