"""Whether the state of a changed program fits a checkpoint: operators, columns, buffers."""
