"""Models: everything that generates text, behind one interface, named by a spec `provider/name`."""
