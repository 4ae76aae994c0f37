"""A savepoint's files: manifest, native and canonical form, labels."""
