"""Ratings by people: blind sheets out, means and agreement back."""
