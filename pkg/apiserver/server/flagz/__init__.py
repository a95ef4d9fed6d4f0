"""Serve the page /flagz, which shows the command line's flags and their values.

Go: k8s.io/apiserver/pkg/server/flagz
"""

from pkg.apiserver.server.flagz.flagreader import FlagSetReader, Reader
from pkg.apiserver.server.flagz.flagz import DEFAULT_FLAGZ_PATH, install

__all__ = ["DEFAULT_FLAGZ_PATH", "FlagSetReader", "Reader", "install"]
