"""Delta tables as Spark leaves them: log, snapshots, versions of batches, retention."""
