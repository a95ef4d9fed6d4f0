"""Serve a fake container runtime on a real socket, for tests, benchmarks and the hollow node.

`FakeRuntime` keeps the sandboxes, containers and images, and has the controls. `FakeServer` serves it, and
`StreamingServer` in streaming.py serves its exec, attach and port forwarding. `python -m kubelet.cri.remote.fake
--socket PATH` runs a fake runtime in its own process.

Go: k8s.io/cri-client/pkg/fake
"""

from kubelet.cri.remote.fake.behaviour import Behaviour, Behaviours
from kubelet.cri.remote.fake.faults import Fault, Faults
from kubelet.cri.remote.fake.images import FakeImages, canonical_name, image_id_of, not_found
from kubelet.cri.remote.fake.in_process import InProcessImageService, InProcessRuntimeService
from kubelet.cri.remote.fake.processes import Play, Process, Target
from kubelet.cri.remote.fake.recorder import Call, Recorder
from kubelet.cri.remote.fake.runtime import FakeRuntime
from kubelet.cri.remote.fake.server import FakeServer

__all__ = [
    "Behaviour",
    "Behaviours",
    "Call",
    "FakeImages",
    "FakeRuntime",
    "FakeServer",
    "Fault",
    "Faults",
    "InProcessImageService",
    "InProcessRuntimeService",
    "Play",
    "Process",
    "Recorder",
    "Target",
    "canonical_name",
    "image_id_of",
    "not_found",
]
