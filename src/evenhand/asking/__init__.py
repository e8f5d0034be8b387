"""Ways to ask a model: a choice, an answer, a completion, a reply, yes or no, JSON, ratings, evidence."""
