"""Run the node agent, which keeps the pods of its sources running on a container runtime.

Each subpackage mirrors the one of the same name below pkg/kubelet in the Go sources; the modules directly in this
package correspond to Go's package kubelet itself. Start reading at kubelet.py.

Go: pkg/kubelet
"""
