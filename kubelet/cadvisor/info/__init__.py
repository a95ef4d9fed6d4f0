"""What cAdvisor's interface speaks of: figures of control groups and of the machine.

v1 is how they are collected and shown as metrics, v2 is how the kubelet's statistics ask for them.

Go: github.com/google/cadvisor/info
"""
