"""What arguments are called: the parameters' names, with the path into nested ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from gradbot.engine.trees import leaves


def named_arguments(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[str, object]]:
    """Every leaf of the arguments with its name."""
    found: list[tuple[str, object]] = []
    names = parameter_names(func)
    for position, each in enumerate(args):
        found += leaves(each, names[position] if position < len(names) else f"input {position}")
    for key, each in kwargs.items():
        found += leaves(each, key)
    return found


def with_names_of(func: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """`wrapper`, whose arguments are called as those of `func`."""
    only = inspect.Parameter.POSITIONAL_ONLY
    parameters = [inspect.Parameter(each, only) for each in parameter_names(func)]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return wrapper


def parameter_names(func: Any) -> list[str]:
    """Names of positional parameters; of a Function's forward without ctx for its `apply`."""
    owner: Any = getattr(func, "__self__", None)
    is_apply = isinstance(owner, type) and issubclass(owner, torch.autograd.Function)
    try:
        parameters = list(inspect.signature(owner.forward if is_apply else func).parameters.values())
    except (TypeError, ValueError, AttributeError):
        return []
    if is_apply and parameters and "setup_context" not in _own_methods(owner):
        parameters = parameters[1:]
    names = []
    for each in parameters:
        if each.kind not in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD):
            break
        names.append(each.name)
    return names


def _own_methods(function_class: type) -> set[str]:
    """Names that a Function's class defines itself or inherits from a class other than torch's own."""
    return {name for base in function_class.__mro__ if not base.__module__.startswith("torch.") for name in vars(base)}
