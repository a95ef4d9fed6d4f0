"""Attackers, each as a process or as pods of its own, and what they do to a kubelet.

- `pods`: pods that meet the "restricted" pod security standard, on a real runtime.
- `client`: clients of the kubelet's port, one without credentials and one that may only read logs of pods.
- `harm`: the kubelet's memory, its sync loop, a bystander's pod and other clients' answers meanwhile.
"""
