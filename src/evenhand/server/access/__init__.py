"""Authentication, limits and CORS."""
