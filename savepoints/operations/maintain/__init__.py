"""Keeping a store in order: tag, copy, expire, collect, rebuild the catalog, begin settings."""
