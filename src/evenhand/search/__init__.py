"""Evidence from outside: search providers, page texts read with care, and what was found, kept with its time."""
