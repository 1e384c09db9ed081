"""Where a job's inputs lie and its results go: local folders and buckets."""
