"""Attack a kubelet with hostile processes or pods, and measure the harm.

- `pods`: pods that meet the "restricted" pod security standard, on a real runtime.
- `client`: clients of the kubelet's port, one without credentials and one that may only read the logs of pods.
- `harm`: measures the kubelet's memory, its sync loop, a bystander's pod and the responses to other clients.
"""
