"""What `check` looks at, one module a subject; each returns what it saw, graded."""
