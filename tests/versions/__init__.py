"""What each version of Spark can do; `make versions` runs it in an environment for each."""
