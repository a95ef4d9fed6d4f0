"""Define the name and the message of the filter for taints.

Go: pkg/scheduler/framework/plugins/tainttoleration/taint_toleration.go
"""

NAME = "TaintToleration"
ERR_REASON_NOT_MATCH = "node(s) had taints that the pod didn't tolerate"
