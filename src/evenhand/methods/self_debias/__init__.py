"""Self-debiasing methods: by prompts (answers), and during generation (texts)."""

from evenhand.methods.self_debias import answers, generation

__all__ = ["answers", "generation"]
