"""The stories that `savepoints demo` tells."""
