"""A driver for tests that prepares claims: its devices are directories of the machine, described by CDI.

    python -m dra_driver --name test.dra.example --socket DIR/dra.sock --registration-dir DIR --state DIR

A program of its own, so that it can be killed and started again, and prepares with each of two versions of the
service. It takes nothing from the kubelet but messages. What the scheduler would allocate, the test says:
`claims/NAME.json` lists the devices of a claim as objects with `device` and, if they are not for all requests,
`requests`; without the file a claim gets one device of its own. `health.json` tells how devices are.

Calls and faults are logged and met as in csi_driver: what stands there for a volume is here the name of a claim.
"""
