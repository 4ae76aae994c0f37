"""Delta tables that queries read: as streams, and as events to replay."""
