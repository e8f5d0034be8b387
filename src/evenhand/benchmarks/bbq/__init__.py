"""BBQ: questions whose passage does not tell, or tells, of whom a stereotype holds."""

from evenhand.benchmarks.bbq import benchmark, hard

__all__ = ["benchmark", "hard"]
