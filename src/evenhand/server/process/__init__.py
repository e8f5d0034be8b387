"""The server as a process: sockets, workers, start and shutdown."""
