"""State made from rows that people have computed."""
