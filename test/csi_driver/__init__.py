"""A CSI driver for tests: volumes are directories and files of the machine, mounted by bind mounts and loop devices.

    python -m csi_driver --name test.csi.example --socket DIR/csi.sock --registration-dir DIR --state DIR

A program of its own, so that it can be killed and started again. It has the Identity and the Node service, and
registers itself as node-driver-registrar does. What it would attach, make and resize on a controller, the test
cluster's controllers do without it. It takes
nothing from the kubelet but messages, and shares no code with its CSI client.

- `volumes.py`: what is done to volumes; every step may be done again, and may be the last before a kill.
- `calls.py`: the log of calls, a JSON line when one begins and one when it ends.
- `faults.py`: calls that fail, wait or kill the driver, as files of a directory say.
- `services.py`: the gRPC services; `__main__.py`: the program.
- `protocol.py`: what a log of calls must look like.
"""
