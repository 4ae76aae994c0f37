"""What others are told of a store: events, hooks, metrics, OpenLineage."""
