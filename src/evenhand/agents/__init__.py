"""Agents: what methods are made of — a session with the models, and ways of reading an answer out of text."""
