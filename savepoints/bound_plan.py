"""Verbs as methods of a handle, and what they would do, bound to where they would do it."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from savepoints.model import several
from savepoints.moments import require_zone
from savepoints.plan import Plan
from savepoints.spark import causes
from savepoints.store.root import Store
from savepoints.uri import written

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
        with causes.named():
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
        keywords = _completed(function, context, kwargs)
        given, keywords = _checked(function, (context.store, *args), keywords)
        with causes.named():
            return function(*given, **keywords)

    return _shown_as(function, method, given=1)


def calls_about(
    function: Callable[Concatenate[Store, str, _P], _R],
) -> Callable[Concatenate[Handle, _P], _R]:
    """Make a method of a function of a store and what the handle is about."""

    def method(handle: Handle, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        context = handle.context
        keywords = _completed(function, context, kwargs, given=2)
        given, keywords = _checked(function, (context.store, context.subject, *args), keywords)
        with causes.named():
            return function(*given, **keywords)

    return _shown_as(function, method, given=2)


def plans(
    plan: Callable[Concatenate[Store, _P], _T], execute: Callable[Concatenate[_T, Store, _E], _R]
) -> Callable[Concatenate[Handle, _P], BoundPlan[_T, _E, _R]]:
    """Make a method of a verb that is planned for a store."""

    def method(handle: Handle, /, *args: _P.args, **kwargs: _P.kwargs) -> BoundPlan[_T, _E, _R]:
        made = calls(plan)(handle, *args, **kwargs)
        return BoundPlan(made, handle.context.store, execute)

    return _shown_as(plan, method, given=1, executed=execute)


def plans_about(
    plan: Callable[Concatenate[Store, str, _P], _T],
    execute: Callable[Concatenate[_T, Store, _E], _R],
) -> Callable[Concatenate[Handle, _P], BoundPlan[_T, _E, _R]]:
    """Make a method of a verb that is planned for what the handle is about."""

    def method(handle: Handle, /, *args: _P.args, **kwargs: _P.kwargs) -> BoundPlan[_T, _E, _R]:
        made = calls_about(plan)(handle, *args, **kwargs)
        return BoundPlan(made, handle.context.store, execute)

    return _shown_as(plan, method, given=2, executed=execute)


def named(*known: str) -> Callable[[type[_H]], type[_H]]:
    """Give the methods of a class the names that they have there, for `help` and tracebacks.

    Args:
        known: Arguments that its methods do not take, since the handle knows them.
    """

    def rename(handle: type[_H]) -> type[_H]:
        for name, method in vars(handle).items():
            if inspect.isfunction(method):
                method.__name__, method.__qualname__ = name, f"{handle.__qualname__}.{name}"
                _hide(method, known)
        return handle

    return rename


def _completed(
    function: Callable[..., Any], context: Context, keywords: Mapping[str, Any], *, given: int = 1
) -> dict[str, Any]:
    """Return the keyword arguments of a call: its own, and the query that the handle is about.

    Raises:
        TypeError: If the handle of a query or a savepoint is told of a query.
    """
    if context.subject and "query" in keywords:
        raise TypeError(f"this handle belongs to {context.subject}: omit query=")
    if context.query is None:
        return dict(keywords)
    takes_query = "query" in list(inspect.signature(function).parameters)[given:]
    return {"query": context.query, **keywords} if takes_query else dict(keywords)


def _checked(
    function: Callable[..., Any], given: tuple[Any, ...], keywords: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Make tuples of what an argument for several values is given, and texts of paths.

    Raises:
        UsageError: If it is one text, or a time has no time zone.
    """
    parameters = inspect.signature(function).parameters
    takes_several = {
        name for name, one in parameters.items() if str(one.annotation).startswith("Sequence[")
    }

    def checked(name: str, value: object) -> object:
        if isinstance(value, datetime):
            require_zone(value, name)
        if name in takes_several and isinstance(value, Iterable):
            return several(value, name)
        return written(value)

    named = [*map(checked, parameters, given), *given[len(parameters) :]]
    return named, {name: checked(name, value) for name, value in keywords.items()}


def _shown_as(
    function: Callable[..., Any],
    method: Callable[_P, _R],
    given: int,
    executed: Callable[..., Any] | None = None,
) -> Callable[_P, _R]:
    """Give a method the name, docstring and signature of a function, but for what it is given.

    Args:
        executed: What carries out the plan that the function returns; the method then returns both.
    """
    functools.update_wrapper(method, function)
    signature = inspect.signature(function)
    returned = signature.return_annotation
    if executed is not None:
        result = inspect.signature(executed).return_annotation
        returned = f"BoundPlan[{returned}, ..., {result}]"
    handle = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = list(signature.parameters.values())
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[handle, *parameters], return_annotation=returned
    )
    _hide(method, [one.name for one in parameters[:given]])
    return method


def _hide(method: Callable[..., Any], names: Collection[str]) -> None:
    """Take arguments out of the signature and the docstring of a method, as `help` shows them."""
    signature = inspect.signature(method)
    left = [one for name, one in signature.parameters.items() if name not in names]
    method.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
    for name in names:
        # With its further lines, which are indented more; the section, too, if nothing is left.
        entry = rf"^    \**{name}: .*\n(?:     +\S.*\n)*"
        text = re.sub(entry, "", inspect.getdoc(method) or "", flags=re.MULTILINE)
        method.__doc__ = re.sub(r"^Args:\n(?!    )\n?", "", text, flags=re.MULTILINE)
