"""Workflows: what the command line and the Python API share. No printing, no options of a command."""
