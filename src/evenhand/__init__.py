"""Evenhand measures and reduces social bias and toxicity of language models and of systems made of them."""
