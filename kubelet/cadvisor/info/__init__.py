"""Define cAdvisor's data types for statistics of cgroups and of the machine.

The collection and the metrics use v1; the kubelet's statistics use v2.

Go: github.com/google/cadvisor/info
"""
