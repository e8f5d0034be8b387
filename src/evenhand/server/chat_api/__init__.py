"""Chat and text completions in OpenAI's form."""
