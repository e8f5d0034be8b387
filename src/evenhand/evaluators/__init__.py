"""Evaluators: an answer → a verdict with a critique in words; shared by methods and the guard."""
