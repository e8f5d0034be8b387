"""Ways to ask a model: for a choice, an answer, a completion, a reply, yes or no, JSON, ratings, evidence."""
