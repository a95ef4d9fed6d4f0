"""A Kubernetes API server for tests, in one process with them.

A real HTTP(S) server with storage in memory for the kinds that a kubelet touches.
"""
