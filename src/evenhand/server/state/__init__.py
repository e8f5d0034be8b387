"""What all processes of a server share: rate limits, budgets, concurrency, wrong keys and the live page."""
