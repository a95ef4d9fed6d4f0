"""The API of /stats/summary.

Go: staging/src/k8s.io/kubelet/pkg/apis/stats
"""
