"""The kubelet's own API types. Go: pkg/kubelet/apis"""
