"""Implement the kubelet's part of pod networking.

Go: pkg/kubelet/network
"""
