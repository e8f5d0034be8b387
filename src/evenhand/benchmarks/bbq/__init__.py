"""BBQ: questions about people whose passage is ambiguous or gives the answer."""

from evenhand.benchmarks.bbq import benchmark, hard

__all__ = ["benchmark", "hard"]
