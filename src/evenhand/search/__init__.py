"""Search for evidence: providers, safe reading of web pages, and a cache of results with their time."""
