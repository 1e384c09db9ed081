"""Front processes: they share the server's port, answer live requests, and ask the replicas."""
