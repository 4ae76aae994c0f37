"""What to do about an output that cannot be taken back, for every command that takes one back."""

# `rollback` and `reset` name the same choice differently, and the errors are those of both.
LEAVE_OUTPUTS = "leave the outputs as they are: rollback --outputs none, reset --outputs keep"
