"""The web: its search providers, and pages read under strict rules."""

from evenhand.search.web import ddgs, wikipedia

__all__ = ["ddgs", "wikipedia"]
