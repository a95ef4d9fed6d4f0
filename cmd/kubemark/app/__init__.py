"""The command behind `kubemark`."""
