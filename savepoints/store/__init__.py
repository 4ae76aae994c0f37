"""Where savepoints live: one root with a catalog, generations, leases, journal and files."""
