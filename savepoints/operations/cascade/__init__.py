"""Corrections of a merge, taken over by the queries that read the corrected table."""
