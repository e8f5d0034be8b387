"""Methods: Sample → Outcome, one algorithm each, using models by role."""

GUARD_METHOD = "stardtox"
"""The method of a guard or a route that names none."""
