"""Workflows: what the command line and the Python API share. No printing, no options of a command.

Calls to models are async. What computes for long between them, such as training, is a plain function: Ctrl-C cannot
stop it inside an event loop.
"""
