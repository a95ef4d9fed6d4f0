"""Define the name and the message of the filter for node selectors and node affinity.

Go: pkg/scheduler/framework/plugins/nodeaffinity/node_affinity.go
"""

NAME = "NodeAffinity"
ERR_REASON_POD = "node(s) didn't match Pod's node affinity/selector"
