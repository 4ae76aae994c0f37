"""Programs for schedulers: `python -m savepoints.jobs.NAME`."""
