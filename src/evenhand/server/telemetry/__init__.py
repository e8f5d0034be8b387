"""What the server reports: events, log, metrics, audit file, health."""
