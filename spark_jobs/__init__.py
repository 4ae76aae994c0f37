"""Applications and jobs that show savepoints at work on real data."""
