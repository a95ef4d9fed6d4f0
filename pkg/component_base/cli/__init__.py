"""Parse command lines.

Go: k8s.io/component-base/cli
"""
