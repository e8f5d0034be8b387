"""The scorer `neural`."""
