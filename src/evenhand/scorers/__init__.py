"""Scorers: texts in batches → named scores in 0–1, with the scorer's id and version."""
