"""Set defaults in, and validate, objects of the core API group, as far as static pods need it.

Go: pkg/apis/core
"""
