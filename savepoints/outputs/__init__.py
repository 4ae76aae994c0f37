"""Delta tables that must agree with the state."""
