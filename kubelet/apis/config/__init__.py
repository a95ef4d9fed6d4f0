"""Define the types of the kubelet's configuration.

Use `from kubelet.apis import config as kubeletconfig`, then `kubeletconfig.KubeletConfiguration`. The subpackages
`scheme`, `v1beta1` and `validation` read files, set defaults and validate, which most code does not need.

Go: pkg/kubelet/apis/config
"""

from kubelet.apis.config.helpers import kubelet_configuration_path_refs
from kubelet.apis.config.types import *  # noqa: F403
from kubelet.apis.config.types import KubeletConfiguration

__all__ = ["KubeletConfiguration", "kubelet_configuration_path_refs"]
