"""The kubelet's executable. Go: cmd/kubelet"""
