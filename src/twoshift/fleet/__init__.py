"""The replicas, wherever they run: observe, decide, act."""
