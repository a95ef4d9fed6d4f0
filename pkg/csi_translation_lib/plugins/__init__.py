"""Provide one translator for each plugin.

Go: k8s.io/csi-translation-lib/plugins
"""
