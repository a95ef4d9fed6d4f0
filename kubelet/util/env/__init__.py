"""Read files of environment variables.

Go: pkg/kubelet/util/env
"""

from kubelet.util.env.env_util import EnvFile, parse_env

__all__ = ["EnvFile", "parse_env"]
