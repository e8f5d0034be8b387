"""Papers whose tables and figures can be made again: what to run for them, their published numbers, and the page.

One module and one YAML file of published numbers per paper; `base` says what a paper is, the rest is shared rendering.
"""
