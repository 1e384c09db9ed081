"""What a request asks of a model and how its answer is written, whichever shift runs it."""
