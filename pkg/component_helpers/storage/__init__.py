"""Questions about storage that the kubelet and others answer alike.

Go: staging/src/k8s.io/component-helpers/storage
"""
