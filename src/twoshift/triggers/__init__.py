"""What fires jobs, and who is told of their end."""
