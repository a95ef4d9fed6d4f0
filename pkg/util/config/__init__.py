"""Merging of configuration that comes from several sources at once.

Go: pkg/util/config
"""

from pkg.util.config.config import Merger, Mux

__all__ = ["Merger", "Mux"]
