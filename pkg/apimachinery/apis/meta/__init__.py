"""The meta API group."""
