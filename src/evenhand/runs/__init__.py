"""Runs: the plan, the runner, the store and the study that compares what was stored."""
