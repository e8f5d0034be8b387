"""Models: everything that generates text, behind one interface, named by spec strings `provider/name`."""
