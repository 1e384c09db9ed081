"""Versions of models: content-addressed files in a folder or a bucket, and a verified cache on this machine."""
