"""Indexes of vectors beside a job's results: how they are built, committed, followed and searched."""
