"""Forks of a query: made, compared, reported on, promoted."""
