"""Values with rules of their own inside API objects."""
