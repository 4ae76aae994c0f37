"""Verbs as methods of a handle, and what they would do, bound to where they would do it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from savepoints.plan import Plan
from savepoints.store.root import Store

# Arguments of the function that plans or calls, and of the one that executes.
_P = ParamSpec("_P")
_E = ParamSpec("_E")
# The plan; what was read, or done.
_T = TypeVar("_T", bound=Plan)
_R = TypeVar("_R")
_H = TypeVar("_H")


@dataclass(frozen=True)
class Context:
    """What a handle knows, so that its methods are not told again.

    Attributes:
        subject: Name of the query, or id of the savepoint, that it is about; empty for a store.
    """

    store: Store
    subject: str
    query: str | None = None


class Handle(Protocol):
    """A store, one of its queries, or one of its savepoints."""

    @property
    def context(self) -> Context:
        """What it knows."""


@dataclass(frozen=True)
class BoundPlan(Generic[_T, _E, _R]):
    """What a verb would do, and the way to do it. Nothing was written yet.

    `str` gives the text that the command line shows before it asks, `to_json` the same as JSON
    values. A plan that something has overtaken is refused when it is executed, before anything is
    written.

    Attributes:
        plan: The frozen plan: steps, warnings, what it was made from, and fields of the verb's own.
    """

    plan: _T
    _store: Store = field(repr=False)
    _execute: Callable[Concatenate[_T, Store, _E], _R] = field(repr=False)

    def execute(self, *args: _E.args, **kwargs: _E.kwargs) -> _R:
        """Do it.

        Args:
            args: None.
            kwargs: `progress`, a function such as `print`, is called with one line for each step.
                `wait`, a timedelta, is how long merge and promote wait for a running query.

        Returns:
            What was done.

        Raises:
            StalePlanError: If what the plan was made from has changed since.
            LockedError: If another verb, or a run, has the query.
        """
        return self._execute(self.plan, self._store, *args, **kwargs)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return self.plan.to_json()

    def __str__(self) -> str:
        return str(self.plan)

    def _repr_html_(self) -> str:
        return self.plan._repr_html_()


def calls(function: Callable[Concatenate[Store, _P], _R]) -> Callable[Concatenate[Handle, _P], _R]:
    """Make a method of a function of a store."""

    def method(handle: Handle, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        context = handle.context
        return function(context.store, *args, **_completed(function, context, kwargs))

    return _shown_as(function, method, given=1)


def calls_about(
    function: Callable[Concatenate[Store, str, _P], _R],
) -> Callable[Concatenate[Handle, _P], _R]:
    """Make a method of a function of a store and what the handle is about."""

    def method(handle: Handle, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        context = handle.context
        keywords = _completed(function, context, kwargs, given=2)
        return function(context.store, context.subject, *args, **keywords)

    return _shown_as(function, method, given=2)


def plans(
    plan: Callable[Concatenate[Store, _P], _T], execute: Callable[Concatenate[_T, Store, _E], _R]
) -> Callable[Concatenate[Handle, _P], BoundPlan[_T, _E, _R]]:
    """Make a method of a verb that is planned for a store."""

    def method(handle: Handle, /, *args: _P.args, **kwargs: _P.kwargs) -> BoundPlan[_T, _E, _R]:
        made = calls(plan)(handle, *args, **kwargs)
        return BoundPlan(made, handle.context.store, execute)

    return _shown_as(plan, method, given=1)


def plans_about(
    plan: Callable[Concatenate[Store, str, _P], _T],
    execute: Callable[Concatenate[_T, Store, _E], _R],
) -> Callable[Concatenate[Handle, _P], BoundPlan[_T, _E, _R]]:
    """Make a method of a verb that is planned for what the handle is about."""

    def method(handle: Handle, /, *args: _P.args, **kwargs: _P.kwargs) -> BoundPlan[_T, _E, _R]:
        made = calls_about(plan)(handle, *args, **kwargs)
        return BoundPlan(made, handle.context.store, execute)

    return _shown_as(plan, method, given=2)


def named(handle: type[_H]) -> type[_H]:
    """Give the methods of a class the names that they have there, for `help` and tracebacks."""
    for name, method in vars(handle).items():
        if inspect.isfunction(method):
            method.__name__, method.__qualname__ = name, f"{handle.__qualname__}.{name}"
    return handle


def _completed(
    function: Callable[..., Any], context: Context, keywords: Mapping[str, Any], *, given: int = 1
) -> dict[str, Any]:
    """Return the keyword arguments of a call: its own, and the query that the handle is about.

    Raises:
        TypeError: If a query's handle is told of a query.
    """
    if context.query is None:
        return dict(keywords)
    if "query" in keywords:
        raise TypeError(f"this handle belongs to the query {context.query}: omit query=")
    takes_query = "query" in list(inspect.signature(function).parameters)[given:]
    return {"query": context.query, **keywords} if takes_query else dict(keywords)


def _shown_as(
    function: Callable[..., Any], method: Callable[_P, _R], given: int
) -> Callable[_P, _R]:
    """Give a method the name, docstring and signature of a function, but for what it is given."""
    functools.update_wrapper(method, function)
    signature = inspect.signature(function)
    own = list(signature.parameters.values())[given:]
    handle = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = signature.replace(parameters=[handle, *own])  # type: ignore[attr-defined]
    return method
