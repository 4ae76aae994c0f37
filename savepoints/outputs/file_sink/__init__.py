"""Directories of Spark's file sink."""
