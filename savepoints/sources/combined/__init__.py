"""Kafka and the archive as one source."""
