"""Going through Scala's sequences and Spark's trees of plans and expressions, by py4j."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

# py4j's proxies for Java objects have no types.
JavaObject: TypeAlias = Any


def nodes(plan: JavaObject) -> Iterator[JavaObject]:
    """Yield a plan and all plans below it."""
    yield plan
    for child in items(plan.children()):
        yield from nodes(child)


def items(sequence: JavaObject) -> list[JavaObject]:
    """Return the elements of a Scala sequence."""
    return [sequence.apply(position) for position in range(sequence.size())]


def class_name(one: JavaObject) -> str:
    """Return the class name of a Java object, without its package."""
    return str(one.getClass().getSimpleName())
