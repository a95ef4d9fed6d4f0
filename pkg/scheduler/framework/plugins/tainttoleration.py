"""The name of the filter for taints, and what it says.

Go: pkg/scheduler/framework/plugins/tainttoleration/taint_toleration.go
"""

NAME = "TaintToleration"
ERR_REASON_NOT_MATCH = "node(s) had taints that the pod didn't tolerate"
