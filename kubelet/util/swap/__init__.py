"""Find out whether the kernel may swap memory out.

Go: pkg/kubelet/util/swap
"""

from kubelet.util.swap.swap_util import TMPFS_NOSWAP_OPTION, is_swap_on, is_tmpfs_noswap_option_supported

__all__ = ["TMPFS_NOSWAP_OPTION", "is_swap_on", "is_tmpfs_noswap_option_supported"]
