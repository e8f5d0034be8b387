"""Tables, charts and pages as values, and how they are written: HTML, terminal, notebook, files."""
