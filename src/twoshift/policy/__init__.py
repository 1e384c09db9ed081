"""The decision code: no clock, no I/O, no randomness. The server and the simulator run the same classes."""
