"""Runs with an end: what `--until` means, and the planned batches that lead there."""
