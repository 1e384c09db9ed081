"""The replicas of a model, wherever they run: routing, supervision, jobs in their lanes."""
