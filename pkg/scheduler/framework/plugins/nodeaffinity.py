"""The name of the filter for node selectors and node affinity, and what it says.

Go: pkg/scheduler/framework/plugins/nodeaffinity/node_affinity.go
"""

NAME = "NodeAffinity"
ERR_REASON_POD = "node(s) didn't match Pod's node affinity/selector"
