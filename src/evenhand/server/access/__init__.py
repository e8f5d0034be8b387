"""Who may ask for what, how much and from which page."""
