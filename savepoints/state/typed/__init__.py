"""State rows with their types, for people and comparisons."""
