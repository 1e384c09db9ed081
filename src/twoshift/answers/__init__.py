"""Answers that a job has made already, by key."""
