"""Documentation of a model's components, and names instead of numbers as their indices.

Every ``build`` ends with `describe`, which takes it from the code:

- a constraint or expression is documented by the docstring of the function that states it, which
  begins with the paper's equation or says that the rows are placegap's own;
- a variable is documented by its line in the list of components of a module's docstring;
- the indices of both are what their letters say (``x[i, k]``, or the parameters of a rule): i and j
  are ops, k, a and b devices, q, r and e edges, u tensors. Other letters count something.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import zip_longest
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyomo.environ as pyo

from placegap.instances.problem import Instance

P = ParamSpec("P")
T = TypeVar("T")

Names = Mapping[str, Sequence[str]]
"""Names of what a letter numbers; "server r" holds for components named ``server_...`` alone."""


def describe(
    model: pyo.ConcreteModel, listed: str | None, names: Names | None = None
) -> pyo.ConcreteModel:
    """Document every component of a model, and index it by names if they are given.

    Lines of `listed` that begin with a component, as in "- ``x[i, k]``: ...", describe the
    variables.
    """
    lines = _listed(listed or "")
    model.unit_ns.doc = "nanoseconds per unit of the model's time"
    labels: dict[str, dict[Any, Any]] = {}
    for component in model.component_objects((pyo.Var, pyo.Constraint, pyo.Expression)):
        rule = getattr(component._rule, "_fcn", None) if hasattr(component, "_rule") else None
        letters: tuple[str, ...] = ()
        if component.name in lines:
            letters, component.doc = lines[component.name]
        if rule is not None:
            letters = rule.__code__.co_varnames[1 : rule.__code__.co_argcount]
            family = rule.__globals__[rule.__qualname__.partition(".")[0]]
            component.doc = component.doc or _first_paragraph(family.__doc__ or "")
        if names is not None and component.is_indexed():
            labels[component.name] = _labels(component, letters, names)
    if names is not None:
        model.labels = labels
        _index(model, labels)
    return model


def names_of(instance: Instance) -> dict[str, Sequence[str]]:
    """Names of ops, devices, edges ("a -> b") and tensors ("a"), by the letters of their numbers.

    Where two edges join the same ops, or an op makes two tensors, the tensor is added: "a -> b (t)"
    and "a (t)", or its number ("#3") where it has no name of its own.
    """
    graph, index = instance.graph, instance.arrays.index
    ops = [op.name for op in graph.ops]
    devices = [device.name for device in instance.cluster.devices]
    own_name = {
        u: edge.tensor or f"#{u}"
        for edge, u in zip(graph.edges, index.tensor.tolist(), strict=True)
    }
    made = [(ops[i], own_name[u]) for u, i in enumerate(index.tensor_producer.tolist())]
    joined = [
        (f"{edge.producer} -> {edge.consumer}", own_name[u])
        for edge, u in zip(graph.edges, index.tensor.tolist(), strict=True)
    ]
    return {
        **dict.fromkeys("ij", ops),
        **dict.fromkeys(("k", "a", "b", "other"), devices),
        **dict.fromkeys("qre", _unique(joined)),
        "u": _unique(made),
    }


def by_number(function: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Let a function of a model find its components by number, whatever they are indexed by."""

    @wraps(function)
    def with_numbers(model: Any, /, *given: P.args, **options: P.kwargs) -> T:
        labels = getattr(model, "labels", None)
        if labels is None:
            return function(model, *given, **options)
        numbers = {
            component: {name: number for number, name in own.items()}
            for component, own in labels.items()
        }
        _index(model, numbers)
        try:
            return function(model, *given, **options)
        finally:
            _index(model, labels)

    return with_numbers


def _listed(text: str) -> dict[str, tuple[tuple[str, ...], str]]:
    """Letters and description of the components that lines of a docstring begin with."""
    found: dict[str, tuple[tuple[str, ...], str]] = {}
    for item in re.findall(r"^- (``.*?)(?=\n- |\n\n|\n\S|\Z)", text, re.MULTILINE | re.DOTALL):
        line = " ".join(item.split()).rstrip(".;,")
        for name, letters in re.findall(r"``(\w+)(?:\[([^]]*)\])?``", line):
            of_index = tuple(letters.replace(" ", "").split(",")) if letters else ()
            found.setdefault(name, (of_index, line.replace("``", "")))
    return found


def _first_paragraph(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split()).replace("``", "").rstrip(".")


def _unique(pairs: list[tuple[str, str]]) -> list[str]:
    """The first of each pair, with the second where the first is not unique."""
    times = Counter(first for first, _ in pairs)
    return [f"{first} ({more})" if times[first] > 1 else first for first, more in pairs]


def _labels(component: Any, letters: tuple[str, ...], names: Names) -> dict[Any, Any]:
    """New index of each index of a component."""
    word = component.name.partition("_")[0]
    of_letter = [names.get(f"{word} {letter}", names.get(letter)) for letter in letters]
    labels = {}
    for index in component.index_set():
        numbers = index if isinstance(index, tuple) else (index,)
        named = tuple(
            number if own is None else own[number]
            for number, own in zip_longest(numbers, of_letter[: len(numbers)])
        )
        labels[index] = named if isinstance(index, tuple) else named[0]
    if len(set(labels.values())) < len(labels):
        raise ValueError(f"{component.name}: two of its indices have one name; build without names")
    return labels


def _index(model: Any, labels: Mapping[str, Mapping[Any, Any]]) -> None:
    """Give the data of components new indices, in place: expressions hold the data, not indices.

    Pyomo has no public function for it; what a model is to a solver stays what it was.
    """
    for name, own in labels.items():
        component = model.component(name)
        if component is None:  # its user has deleted it
            continue
        index_set = pyo.Set(initialize=list(own.values()))
        index_set.construct()
        component._index_set = index_set
        component._data = {own[index]: data for index, data in component._data.items()}
        for index, data in component._data.items():
            data._index = index
