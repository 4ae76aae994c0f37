"""A checkpoint's state stores: their files, schemas, operators and records."""
