"""Queries that read each other's tables, taken back together."""
