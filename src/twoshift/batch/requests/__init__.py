"""Batches of requests: files with a request a line, run as jobs, and their results."""
