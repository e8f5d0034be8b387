"""Papers whose tables and figures can be reproduced: the runs, the published numbers, and the page.

Each paper has a package with a YAML file of published numbers. `base` defines the interface, `making` plans and runs a
paper and writes its page; `reading`, `claims` and `page` are shared.
"""
