"""The replay of a merge, and the proof that it comes out as the live query has it."""
