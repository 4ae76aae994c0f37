"""What savepoints cost, beside what Spark itself needs for the same work: `python -m benchmarks`.

One module a measure, each with a function `measure(directory, keys, rounds)`. `flink` is the one
that compares with Flink, and has its cluster in the modules `flink_*`.
"""
