"""Queries that do not begin with nothing: state from rows, or from the events before."""
