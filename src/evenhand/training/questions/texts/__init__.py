"""The sentences of which questions are made, by language: situations, people and wording."""
