"""Savepoints, rows and comparisons as text for a terminal."""
