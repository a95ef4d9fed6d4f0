"""Provide helpers that read the configuration.

Go: pkg/kubelet/kubeletconfig/util
"""
