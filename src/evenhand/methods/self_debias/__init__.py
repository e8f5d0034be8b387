"""Self-debiasing: of answers by prompts alone, and of texts while they are generated."""

from evenhand.methods.self_debias import answers, generation

__all__ = ["answers", "generation"]
