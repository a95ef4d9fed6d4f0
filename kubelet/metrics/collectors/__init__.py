"""Collect metrics on each scrape from statistics of other components.

Go: pkg/kubelet/metrics/collectors
"""
