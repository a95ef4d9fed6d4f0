"""Define values within API objects that have their own syntax and rules."""
