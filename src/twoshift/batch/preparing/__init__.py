"""A job's shards in processes of their own: they read, prepare and write, and the worker's engine runs the rows."""
