"""Provide the command `kubemark`."""
