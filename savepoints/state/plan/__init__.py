"""What a query plan says of state: initial buffers, keys of joins."""
