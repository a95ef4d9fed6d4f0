"""Run a device plugin for tests. The plugin is a process that offers devices, and files control it."""
