"""Queries that read each other's tables, handled as one."""
