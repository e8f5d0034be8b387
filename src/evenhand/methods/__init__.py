"""Methods: each is one algorithm that turns a sample into an outcome and calls models by role."""

GUARD_METHOD = "stardtox"
"""The default method of guards and routes."""
