"""Events from an HTTP feed that repeats itself, each once.

`load` brings them into Kafka, as often as it has to; the query `events_once` keeps each once, with
a bounded memory. See docs/how-to/ingest.md.
"""
