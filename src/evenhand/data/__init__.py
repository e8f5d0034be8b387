"""Data: small built-in sets written for this project, and loaders and pulls of the public ones."""
