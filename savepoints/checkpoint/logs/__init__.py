"""A checkpoint's logs: offsets, commits, source logs, and batches that are planned in them."""
