"""Web search providers, and safe fetching and reading of web pages."""

from evenhand.search.web import ddgs, wikipedia

__all__ = ["ddgs", "wikipedia"]
