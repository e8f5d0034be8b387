"""Evenhand inside other tools: each tool is one module or folder, behind its own extra."""
