"""Outputs taken back to a version, rows and transaction ids together."""
