"""Questions about storage that the kubelet and others answer alike.

Go: k8s.io/component-helpers/storage
"""
