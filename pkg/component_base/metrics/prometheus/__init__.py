"""Provide metrics for other packages, which need not import this package."""
