"""Events: what happened to an object, for people to read.

Go: k8s.io/client-go/tools/record
"""

from pkg.client_go.tools.record.event import EventRecorder
from pkg.client_go.tools.record.standalone import RecordedEvent, StandaloneRecorder
from pkg.client_go.tools.record.testing import FakeRecorder

__all__ = ["EventRecorder", "FakeRecorder", "RecordedEvent", "StandaloneRecorder"]
