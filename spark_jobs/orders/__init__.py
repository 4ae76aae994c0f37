"""The orders that the example applications read: real data, its record format, its producer."""
