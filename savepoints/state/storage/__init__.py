"""State rows in stores and tables: read and written."""
