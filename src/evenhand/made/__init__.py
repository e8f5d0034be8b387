"""Data sets made with models: scenarios that they write, questions that they fail, texts of their own."""
