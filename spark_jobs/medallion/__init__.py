"""Orders through three queries, each of which reads what the one before it writes.

`bronze` keeps each order of the topic once, `silver` adds what the customer had ordered before and
the tier that this made, and `gold` sums up orders by day and tier. See docs/how-to/medallion.md.
"""
