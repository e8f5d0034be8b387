"""`python -m evenhand` is the command line."""

from evenhand.cli.main import entry

if __name__ == "__main__":
    entry()
