"""Run a CSI driver for tests. Its volumes are directories and files, mounted by bind mounts and loop devices.

    python -m csi_driver --name test.csi.example --socket DIR/csi.sock --registration-dir DIR --state DIR

The driver is a separate program, so that it can be killed and started again. It serves the Identity and the Node
service, and registers itself as node-driver-registrar does. It has no controller service: the test cluster's
controllers attach, create and resize volumes without it. The kubelet reaches the driver only through messages, and the
driver shares no code with the kubelet's CSI client.

- `volumes.py`: the operations on volumes. Every step is idempotent, and the driver may be killed after each.
- `calls.py`: the log of calls, with a JSON line at the start and one at the end of each call.
- `faults.py`: calls that fail, wait or kill the driver, controlled by files in a directory.
- `services.py`: the gRPC services; `__main__.py`: the program.
- `protocol.py`: the rules for a log of calls.
"""
