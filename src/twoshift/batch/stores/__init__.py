"""Databases and vector stores that a job's parts are loaded into."""
