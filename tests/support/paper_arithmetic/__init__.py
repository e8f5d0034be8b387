"""What the published tables say about themselves, computed from the published numbers: one module for each paper."""
