"""Looking at savepoints and queries without changing any: verify, drill, diff, state, estimate."""
