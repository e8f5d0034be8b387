"""The live page of the server, which shows the guard's work in real time."""
