"""`python -m savepoints` is the command `savepoints`."""

from savepoints.cli.main import main

main()
