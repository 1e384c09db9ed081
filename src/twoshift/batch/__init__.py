"""The night shift: a model mapped over a dataset, committed shard by shard, each exactly once."""
