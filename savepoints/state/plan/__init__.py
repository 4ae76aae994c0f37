"""What a query plan shows of state: initial buffers, keys of joins."""
