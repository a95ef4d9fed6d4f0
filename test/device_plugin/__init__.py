"""A device plugin for tests: a process that offers devices, and does as files tell it."""
