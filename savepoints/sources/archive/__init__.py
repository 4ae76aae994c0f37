"""The archive: the Delta table of all events of a topic."""
