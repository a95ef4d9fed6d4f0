"""The command behind `python -m cmd.kubemark`."""
