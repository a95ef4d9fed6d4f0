"""Run a DRA driver for tests. Its devices are directories of the machine, described by CDI.

    python -m dra_driver --name test.dra.example --socket DIR/dra.sock --registration-dir DIR --state DIR

The driver is a separate program, so that it can be killed and started again. It serves two versions of the service. The
kubelet reaches the driver only through messages. The test decides what the scheduler would allocate: `claims/NAME.json`
lists the devices of a claim as objects with `device` and, if they are not for all requests, `requests`. Without the
file a claim gets one device of its own. `health.json` has the health of devices.

The driver logs calls and applies faults as csi_driver does, with the name of a claim in the place of the name of a
volume.
"""
