"""One module a command, named after it; each has `command`."""
