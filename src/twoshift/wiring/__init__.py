"""Chooses concrete adapters, one file for each thing that is put together."""
