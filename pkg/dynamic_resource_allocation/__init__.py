"""What all who deal with claims of resources share.

Go: staging/src/k8s.io/dynamic-resource-allocation
"""
