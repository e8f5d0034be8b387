"""Turns debates into preference data, and preference data into a less biased model."""
