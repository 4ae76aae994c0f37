"""Kafka: topics, offsets, rates, targets of a reset."""
