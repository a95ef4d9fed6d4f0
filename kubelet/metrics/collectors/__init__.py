"""Metrics that are made when somebody asks for them, of figures that others have.

Go: pkg/kubelet/metrics/collectors
"""
