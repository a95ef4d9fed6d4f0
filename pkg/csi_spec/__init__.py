"""Define the messages and services of the Container Storage Interface, version 1.

Go: github.com/container-storage-interface/spec/lib/go/csi
"""
