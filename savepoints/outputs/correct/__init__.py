"""An output corrected in one commit: the rows of some entities, or all."""
