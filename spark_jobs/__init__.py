"""Applications that show savepoints at work on real data."""
