"""A Kafka broker, an S3 server and the jars for Spark on this machine, without containers.

For the demo, for tests, and for trying things out: `LocalWorld.start()`, or
`python -m savepoints.local up` in a shell.
"""

from savepoints.local.world import LocalWorld

__all__ = ["LocalWorld"]
