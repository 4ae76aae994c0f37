"""What each version of Spark can do; `make test-versions` runs it in an environment for each."""
