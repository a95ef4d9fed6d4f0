"""The filters that the node's admission uses, each with its name and what it says when a pod does not fit.

Go: pkg/scheduler/framework/plugins
"""
