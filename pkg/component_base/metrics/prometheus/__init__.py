"""Metrics of other packages, which need not know of them."""
