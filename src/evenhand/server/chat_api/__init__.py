"""Chat and text completions in OpenAI's format."""
