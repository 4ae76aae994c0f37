"""Late batches: read, checked, and the entities that they touch."""
