"""Settings: their schema, the files and variables they come from, schedules, durations, secrets."""
