"""What the API server keeps of each kind, as far as a kubelet needs it. Go: pkg/registry"""
