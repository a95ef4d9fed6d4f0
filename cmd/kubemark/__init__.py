"""Provide the hollow node: the real kubelet on a container runtime that runs nothing."""
