"""Sources: what Kafka still has of what a savepoint continues with."""
