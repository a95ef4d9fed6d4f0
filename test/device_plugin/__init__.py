"""Run a device plugin for tests as a process that offers devices and that files control."""
