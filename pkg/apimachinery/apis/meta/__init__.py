"""Provide the meta API group."""
