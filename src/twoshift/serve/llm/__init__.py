"""Language models that are served: admission, streams, and what they count."""
