"""Moderation and Perspective endpoints, answered by any scorer."""
