"""The machinery that API types share."""
