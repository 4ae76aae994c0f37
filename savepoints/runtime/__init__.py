"""What runs a query: the application, its inputs, the runner, runs with an end, replays."""
