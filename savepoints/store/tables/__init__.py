"""The store's Delta tables: catalog, generations, events, merge ledger."""
