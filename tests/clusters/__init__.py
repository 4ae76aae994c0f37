"""Whole stories on Spark's standalone cluster: two executors that share nothing with the driver."""
