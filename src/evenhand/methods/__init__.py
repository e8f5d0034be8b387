"""Methods: Sample → Outcome, one algorithm each, using models by role."""
