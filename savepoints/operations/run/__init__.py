"""Running a query: periodic savepoints, pauses, recovery, and drivers that users start."""
