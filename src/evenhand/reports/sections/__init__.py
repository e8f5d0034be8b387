"""The sections of the HTML report: each is a function from a view of the study to markup.

Every report has those that `html` lists; `base` says how a benchmark adds its own.
"""
