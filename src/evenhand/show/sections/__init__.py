"""The sections of the HTML report: each is a function from a view of the study to markup.

`html` lists the sections of every report; `base` lets a benchmark add its own.
"""
