"""State rows: reading and writing what state stores hold. Needs a Spark session."""
