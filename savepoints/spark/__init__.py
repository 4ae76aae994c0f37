"""Spark: sessions, columns, its listener."""
