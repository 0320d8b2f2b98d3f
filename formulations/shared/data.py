"""Sets and Params that models share: names of an instance's parts, its data in ns and bytes.

Every model has the Sets ``OPS`` and ``DEVICES``, and of the others those that it needs:

- ``EDGES``: "a -> b" for the edge from op a to op b, "a -> b (t)" where several edges join them;
- ``TENSORS``: "a" for the only tensor of op a, "a (t)" where it makes several;
- ``LINKS``: (a, b), pairs of different devices; ``ARCS``: (i, j), op i feeds op j;
- ``PLACES``: (i, k), op i can be on device k; ``READERS``: (u, j), op j reads tensor u.

All are in the order of the instance, so that the n-th name is what the instance numbers n.
Names in upper case are Sets; a Param says its unit (``_ns``, ``_bytes``) and is data as given;
variables of time are in units of ``unit_ns``, as are their rows, which divide by it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import count, permutations
from typing import Any, Concatenate, ParamSpec

import numpy as np
import pyomo.environ as pyo

from placegap.formulations.shared import NO_SOLUTION
from placegap.formulations.shared.pairs import consumers_of_tensors
from placegap.formulations.shared.times import Windows, granularity_ns, time_unit_ns
from placegap.instances.problem import Instance, Makespan, Semantics
from placegap.instances.reading.errors import InputError

P = ParamSpec("P")
DRIFT = 1e-5  # how far a solution may be off a row, in units of the model; solvers allow 1e-6


# -------------------------------------------------------------------------------------------- names


@dataclass(frozen=True)
class Names:
    """Names of the parts of an instance, by their numbers."""

    ops: list[str]
    devices: list[str]
    edges: list[str]
    tensors: list[str]


def names_of(instance: Instance) -> Names:
    """The names of an instance's ops, devices, edges and tensors, each different from the others.

    Examples
    --------
    >>> from placegap.instances import example
    >>> names_of(example()).edges
    ['op1 -> op2', 'op1 -> op3', 'op2 -> op4', 'op3 -> op4']
    """
    graph, index = instance.graph, instance.arrays.index
    ops = [op.name for op in graph.ops]
    tensor = index.tensor.tolist()
    own = {u: edge.tensor or f"#{u}" for edge, u in zip(graph.edges, tensor, strict=True)}
    made = [(ops[i], own[u]) for u, i in enumerate(index.tensor_producer.tolist())]
    joined = [
        (f"{edge.producer} -> {edge.consumer}", own[u])
        for edge, u in zip(graph.edges, tensor, strict=True)
    ]
    devices = [device.name for device in instance.cluster.devices]
    return Names(ops, devices, _different(joined), _different(made))


def _different(pairs: list[tuple[str, str]]) -> list[str]:
    """The first of each pair, with the second or its number where that leaves two alike."""
    times = Counter(first for first, _ in pairs)
    longer = [f"{first} ({more})" if times[first] > 1 else first for first, more in pairs]
    times = Counter(longer)
    return [f"{name} #{at}" if times[name] > 1 else name for at, name in enumerate(longer)]


# ------------------------------------------------------------------------------------- a new model


def new_model(
    title: str, instance: Instance, semantics: Semantics, unit_ns: float = 1.0
) -> pyo.ConcreteModel:
    """A model with the Sets of names, which remembers the semantics that it states."""
    names = names_of(instance)
    model = pyo.ConcreteModel(name=f"{title}: {instance.name}")
    model.semantics = semantics  # for `warm_start` and `extract`
    model.unit_ns = pyo.Param(initialize=unit_ns, doc="nanoseconds per unit of the model's time")
    model.OPS = pyo.Set(initialize=names.ops, doc="ops")
    model.DEVICES = pyo.Set(initialize=names.devices, doc="devices")
    model.LINKS = pyo.Set(
        initialize=list(permutations(names.devices, 2)), dimen=2, doc="pairs of different devices"
    )
    return model


def model_of_flows(
    title: str, instance: Instance, semantics: Makespan, horizon_ns: int, big_m: float | None = None
) -> pyo.ConcreteModel:
    """A model with ``EDGES``, ``producer[q]``, ``consumer[q]`` of edge q, and ``horizon``."""
    unit_ns = time_unit_ns(horizon_ns, granularity_ns(instance, transfers=True))
    model = new_model(title, instance, semantics, unit_ns)
    most = horizon_ns / unit_ns if big_m is None else big_m
    model.horizon = pyo.Param(initialize=most, doc="H, the horizon or big-M, in units")
    model.EDGES = pyo.Set(initialize=names_of(instance).edges, doc="edges")
    for end in ("producer", "consumer"):
        ops = [getattr(edge, end) for edge in instance.graph.edges]
        label_data(model, end, model.EDGES, ops, doc=f"{end} of edge q")
    return model


def tensor_sets(model: pyo.ConcreteModel, instance: Instance) -> None:
    """``TENSORS``, ``producer[u]`` of tensor u, and ``READERS``: pairs (u, j), op j reads u."""
    tensors, ops = names_of(instance).tensors, list(model.OPS)
    made = [ops[i] for i in instance.arrays.index.tensor_producer.tolist()]
    read = zip(tensors, consumers_of_tensors(instance), strict=True)
    model.TENSORS = pyo.Set(initialize=tensors, doc="tensors")
    label_data(model, "producer", model.TENSORS, made, doc="op that makes tensor u")
    pairs = [(u, ops[j]) for u, own in read for j in own]
    model.READERS = pyo.Set(initialize=pairs, dimen=2, doc="(u, j): op j reads tensor u")


def label_data(
    model: pyo.ConcreteModel, name: str, index: Any, labels: Iterable[str], doc: str
) -> None:
    """A Param of names, one for each element of a Set."""
    given = dict(zip(index, labels, strict=True))
    model.add_component(name, pyo.Param(index, initialize=given, within=pyo.Any, doc=doc))


def add_data(
    model: pyo.ConcreteModel,
    name: str,
    given: dict[Any, int],
    doc: str | None = None,
    *,
    index: pyo.Set | None = None,
    validate: Callable[..., bool] | None = None,
) -> None:
    """A Param of integers that may be changed between solves, to what `validate` lets through."""
    options = {"mutable": True, "within": pyo.Any, "validate": validate, "doc": doc}
    index = list(given) if index is None else index
    model.add_component(name, pyo.Param(index, initialize=given, **options))


def duration_data(
    model: pyo.ConcreteModel, instance: Instance, *, only_longer: bool = False
) -> None:
    """``duration_ns[i, k]``, mutable: time of op i on device k, where k can run i."""
    able, times = instance.arrays.able, instance.arrays.time_ns
    ops, devices = list(model.OPS), list(model.DEVICES)
    given = {(ops[i], devices[k]): int(times[i, k]) for i, k in np.argwhere(able).tolist()}
    doc = "duration_ns[i, k]: time of op i on device k"
    add_data(model, "duration_ns", given, doc, validate=NotBelow(given) if only_longer else None)


def transfer_data(
    model: pyo.ConcreteModel,
    instance: Instance,
    arcs: Iterable[tuple[int, int, int]] | None = None,
    *,
    only_longer: bool = False,
) -> None:
    """``transfer_ns[q, a, b]``, mutable: time of edge q from a to b, for arcs of numbers or all."""
    arrays, names = instance.arrays, names_of(instance)
    if arcs is None:
        links = list(permutations(range(instance.num_devices), 2))
        arcs = [(q, a, b) for q in range(len(names.edges)) for a, b in links]
    move = arrays.transfer_ns[:, arrays.link_class][arrays.index.tensor].tolist()
    given = {
        (names.edges[q], names.devices[a], names.devices[b]): move[q][a][b]
        for q, a, b in arcs
        if a != b
    }
    doc = "transfer_ns[q, a, b]: time of edge q from device a to device b"
    add_data(model, "transfer_ns", given, doc, validate=NotBelow(given) if only_longer else None)


def window_data(model: pyo.ConcreteModel, window: Windows) -> None:
    """``head_ns[i, k]``, ``tail_ns[i, k]``, data of the rows: they come with the horizon."""
    at = np.nonzero(window.possible)
    for name, level_ns, doc in (
        ("head_ns", window.head_ns, "head_ns[i, k]: least time before op i on device k"),
        ("tail_ns", window.tail_ns, "tail_ns[i, k]: least time after op i on device k"),
    ):
        given = dict(zip(model.PLACES, level_ns[at].tolist(), strict=True))
        model.add_component(name, pyo.Param(model.PLACES, initialize=given, doc=doc))


@dataclass(frozen=True)
class NotBelow:
    """Pyomo's `validate` where windows, pairs and big-M hold only for data at least as hard."""

    given: dict[Any, int]

    def __call__(self, _: pyo.ConcreteModel, value: float, *index: str) -> bool:
        """Whether the model stays right with this value."""
        return value >= self.given[index if len(index) > 1 else index[0]]


@dataclass(frozen=True)
class NotAbove:
    """Pyomo's `validate` of capacities: x is fixed to 0 where an op did not fit at first."""

    given: dict[str, int]
    fixed: Sequence[str] = ()

    def __call__(self, _: pyo.ConcreteModel, value: float, k: str) -> bool:
        """Whether the model stays right with this value."""
        return value == self.given[k] or (value < self.given[k] and k not in self.fixed)


# ------------------------------------------------------------------------------------ documentation


def family(
    add: Callable[Concatenate[pyo.ConcreteModel, P], None],
) -> Callable[Concatenate[pyo.ConcreteModel, P], None]:
    """A function that adds components to a model: its first paragraph documents those without."""
    # A last paragraph in dollars is the same in LaTeX, for the pages. `stated_by` of a model keeps
    # which function has added which component.
    said = " ".join((add.__doc__ or "").partition("\n\n")[0].split()).replace("``", "").rstrip(".")

    @wraps(add)
    def documented(model: pyo.ConcreteModel, /, *given: P.args, **options: P.kwargs) -> None:
        known = set(model.component_map())
        add(model, *given, **options)
        stated_by = getattr(model, "stated_by", {})
        for name in [name for name in model.component_map() if name not in known]:
            component = model.component(name)
            component.doc = component.doc or said
            stated_by.setdefault(name, f"{add.__module__}.{add.__name__}")
        model.stated_by = stated_by

    return documented


# ----------------------------------------------------------------------------------- plans in, out


def require_solution(model: pyo.ConcreteModel, instance: Instance, *, check: bool = True) -> None:
    """Raise an InputError unless the values of the variables satisfy every active row."""
    # Whoever solved the model, and whatever became of it: an infeasible model has no such values,
    # and a solve that was stopped leaves those of a feasible plan or none. `check` False leaves the
    # rows out (22 us each) where the solver has just said that it has a solution.
    if list(model.OPS) != [op.name for op in instance.graph.ops]:
        raise InputError(f"the model is not of {instance.name}: its ops are others")
    for variable in model.component_data_objects(pyo.Var):
        if variable.value is None:
            raise InputError(NO_SOLUTION)
    for row in model.component_data_objects(pyo.Constraint, active=True) if check else ():
        if row.slack() < -DRIFT * max(1.0, abs(row.ub or 0.0), abs(row.lb or 0.0)):
            raise InputError(f"{NO_SOLUTION}; its values break {row.name}")


def device_numbers(model: pyo.ConcreteModel) -> list[int]:
    """The device of each op from the values of x, both by number."""
    devices = list(model.DEVICES)
    return [max(range(len(devices)), key=lambda k: model.x[i, devices[k]].value) for i in model.OPS]


def set_placement(model: pyo.ConcreteModel, device: list[int]) -> None:
    """Set the values of x to those of a plan."""
    names = list(model.DEVICES)
    set_values(model.x, {(i, names[k]) for i, k in zip(model.OPS, device, strict=True)})


def set_values(variables: Any, ones: Collection[Any]) -> None:
    """Set variables that are not fixed to 1 at these indices, to 0 at all others."""
    for at, variable in variables.items():
        if not variable.fixed:
            variable.set_value(int(at in ones))


# ----------------------------------------------------------------------------------- names in files


LONGEST_NAME = 240  # letters in a file: solvers read 255, and Pyomo puts a few more around
SAFE = str.maketrans({"[": "(", "]": ")", " ": None, "'": None, "/": "."})
UNSAFE = re.compile(r"[^A-Za-z0-9!#$%&(),.;?@_{}~]")  # what the LP format has no place for


class FileNames:
    """Pyomo's `labeler` for LP and MPS files: x[op1,gpu0] is x(op1,gpu0), and edge "a -> b" is a~b.

    The LP format forbids brackets, spaces and signs. No two names are alike.
    """

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def __call__(self, component: Any) -> str:
        """The name of a variable or row."""
        plain = component.name.replace(" -> ", "~").translate(SAFE)
        name = plain = UNSAFE.sub("_", plain)[:LONGEST_NAME]
        for number in count(2):
            if name not in self.taken:
                break
            name = f"{plain}#{number}"
        self.taken.add(name)
        return name
