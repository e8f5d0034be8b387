"""Evaluators judge an answer and return a verdict with a written critique. Methods and the guard share them."""
