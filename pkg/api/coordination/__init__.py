"""The API of coordination."""
