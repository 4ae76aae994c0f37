"""The verbs: one module each, with `plan` and `execute`."""
