"""The page of a paper: HTML, CSV files and the terminal."""
