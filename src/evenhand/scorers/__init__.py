"""Scorers: map batches of texts to named scores in 0–1, with an id and a version."""
