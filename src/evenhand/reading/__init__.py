"""Ways to read an answer out of what a model wrote."""
