"""State of a merge: spliced, combined, compared with controls."""
