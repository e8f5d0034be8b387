"""Scoring endpoints in the formats of OpenAI's moderations and of Perspective, answered by any scorer."""
