"""Papers whose tables and figures can be reproduced: the runs, the published numbers, and the page.

Each paper has a package with a YAML file of published numbers. `base` defines the interface; `page` and `studies` are
shared.
"""
