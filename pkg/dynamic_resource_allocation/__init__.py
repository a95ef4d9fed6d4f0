"""What all who deal with claims of resources share.

Go: k8s.io/dynamic-resource-allocation
"""
