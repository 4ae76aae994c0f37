"""What savepoints cost, beside what Spark itself needs for the same work: `python -m benchmarks`.

One module a measure, each with a function `measure(directory, keys, rounds)`.
"""
