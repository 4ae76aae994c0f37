"""Spark's checkpoint directory as a file format: read without a JVM and without pyspark."""
