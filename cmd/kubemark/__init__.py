"""The hollow node: the real kubelet over a container runtime that runs nothing."""
