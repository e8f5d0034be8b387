"""Trains the built-in scorers from scored public text and measures them; see docs/results/scorer-card.md."""
