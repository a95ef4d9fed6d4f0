"""Helpers for reading configuration. Go: pkg/kubelet/kubeletconfig/util"""
