"""Late events merged into live state and outputs."""
