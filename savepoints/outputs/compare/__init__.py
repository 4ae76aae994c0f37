"""Two versions of an output compared."""
