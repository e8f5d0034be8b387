"""The guard as a server: OpenAI-compatible, with scoring endpoints, operation and a live page."""
