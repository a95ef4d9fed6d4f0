"""Run a DRA driver for tests. Its devices are directories of the machine, described by CDI.

    python -m dra_driver --name test.dra.example --socket DIR/dra.sock --registration-dir DIR --state DIR

The driver is a separate program, so that it can be killed and started again. It serves two versions of the service, and
gets only messages from the kubelet. The test decides what the scheduler would allocate: `claims/NAME.json` lists the
devices of a claim as objects with `device` and, if they are not for all requests, `requests`. Without the file a claim
gets one device of its own. `health.json` has the health of devices.

Calls are logged and faults are applied as in csi_driver. In the place of a volume there is the name of a claim.
"""
