"""Help to read the configuration. Go: pkg/kubelet/kubeletconfig/util"""
