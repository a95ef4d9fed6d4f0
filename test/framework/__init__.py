"""What the test suites share: real processes to drive, clients to look at them with, ways to wait."""
