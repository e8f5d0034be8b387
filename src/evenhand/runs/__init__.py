"""Runs: the plan, the dry run, the runner, and the store that it writes to."""
