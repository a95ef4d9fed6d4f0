"""API groups of the machinery itself."""
