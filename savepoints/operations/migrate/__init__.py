"""State made to fit: the check of a changed program, migration, edits by hand."""
