"""Trains the built-in scorers from scored public text and measures them; see docs/scorer-card.md."""
