"""The production policies under a virtual clock: what would happen if."""
