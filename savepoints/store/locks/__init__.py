"""Who may change what now: leases, journals of operations, pause requests, readers."""
