"""The judge in one place: rubrics, the ways to read a rating, cards, scorers that ask a judge, and answers in pairs."""
