"""The live page of the server: what the guard does, as it happens."""
