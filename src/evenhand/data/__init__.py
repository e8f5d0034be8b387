"""Data sets: small built-in ones written for this project, and loaders and downloads of public ones."""
