"""The code that decides: no clock, no I/O, no randomness; production and the simulator run these classes."""
