"""OpenAI's Responses format: requests become chat completions requests, so that one guard answers both."""
