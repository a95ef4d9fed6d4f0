"""Define the API of /stats/summary.

Go: k8s.io/kubelet/pkg/apis/stats
"""
