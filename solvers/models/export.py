"""Write the model that a method would solve to a file, for other solvers and for reading."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args

import pyomo.environ as pyo

from placegap.formulations.shared.data import FileNames
from placegap.instances.files.output_files import OutputError, OutputFile, is_file
from placegap.instances.problem import Instance, Plan, Semantics
from placegap.instances.problem.additive_memory import relax_memory
from placegap.instances.reading.errors import InputError, paused_collector
from placegap.solvers.core.method import Formulation, Limits, Task
from placegap.solvers.core.registry import METHODS, find_method, parse_params, why_not
from placegap.solvers.core.starts import best_start, placers
from placegap.solvers.models.run_mip import prepare

Format = Literal["mps", "lp"]


@dataclass(frozen=True)
class WrittenModel:
    """What the file holds."""

    path: Path
    #: rows, columns: Constraints and variables of the model; a constraint with two sides is one.
    rows: int
    columns: int
    unit_ns: float  # nanoseconds per unit of the objective
    #: Value of the plan that the model may take for granted: plans that are worse may be cut off.
    start_ns: int | None


def write_model(
    instance: Instance,
    semantics: Semantics,
    method: str,
    params: Mapping[str, object] | None,
    path: str | Path,
    *,
    time_limit_s: float | None = None,
    seed: int = 0,
    incumbent: Plan | None = None,
) -> WrittenModel:
    """Write the model that `run_method` with the same arguments would hand to the solver first."""
    # Components keep their names: ``x[op1,gpu0]`` becomes ``x(op1,gpu0)`` (`FileNames`), as the LP
    # format forbids brackets. The rows that
    # `shared.families.exclude_overload` adds when a solution exceeds a device's memory by a few
    # bytes are not in it. The path ends in ``.mps`` or ``.lp``, and in ``.gz`` after that if it is
    # to be compressed.
    path = Path(path)
    kind = model_format(path)
    chosen = find_method(method)
    parsed = parse_params(chosen, params or {})
    build = formulation_of(method)
    instance, semantics = relax_memory(instance, semantics)  # as `run_method` first does
    task = Task(instance, semantics, Limits(time_limit_s, seed=seed), incumbent)
    reason = why_not(chosen, task, parsed)
    if reason is not None:
        raise InputError(f"{method} does not apply to {instance.name}: {reason}")
    with _complete_or_not_at_all(path, kind) as plain:
        formulation: Formulation = build(task, parsed)
        by_placers = placers(task) if getattr(parsed, "start", True) else ()
        start = best_start(task, (*by_placers, *formulation.starts))
        model = prepare(formulation, start)
        write_pyomo(model, plain, kind)
    return WrittenModel(path, *measure(model), start_ns=None if start is None else start.value)


def measure(model: pyo.ConcreteModel) -> tuple[int, int, float]:
    """Rows, columns and the nanoseconds per unit of the objective."""
    rows, columns = (
        sum(1 for _ in model.component_data_objects(kind, active=True))
        for kind in (pyo.Constraint, pyo.Var)
    )
    return rows, columns, float(pyo.value(model.unit_ns))


def save_model(model: pyo.ConcreteModel, path: Path) -> None:
    """Write a model as its file's name says: `.mps` or `.lp`, or `.gz` of it."""
    kind = model_format(path)
    with _complete_or_not_at_all(path, kind) as plain:
        write_pyomo(model, plain, kind)


def write_pyomo(model: pyo.ConcreteModel, path: Path, kind: Format) -> None:
    """Write a model, feasible or not, with readable names and all digits of its coefficients."""
    names = FileNames()
    with paused_collector():
        if kind == "lp":
            model.write(str(path), io_options={"symbolic_solver_labels": True, "labeler": names})
            return
        # Pyomo's MPS has numbers for names: its labeler cannot be chosen there.
        _, written = model.write(str(path))
        symbols = model.solutions.symbol_map[written]
        readable = {symbol: names(part) for symbol, part in symbols.aliases.items()}
        for symbol, part in symbols.bySymbol.items():
            readable.setdefault(symbol, names(part))
        head, rows, body = path.read_text().partition("\nROWS\n")
        texts = re.sub(r"\S+", lambda found: readable.get(found[0], found[0]), body)
        path.write_text(head + rows + texts)


def formulation_of(method: str) -> Callable[[Task[Any], Any], Formulation]:
    """What builds the MIP of a method; a method without one is refused."""
    found = find_method(method).formulation
    if found is None:
        names = [name for name, known in METHODS.items() if known.formulation is not None]
        raise InputError(
            f"{method} has no MIP model to write; methods that have one: {', '.join(names)}"
        )
    return found


def model_format(path: Path) -> Format:
    """The format of a file name."""
    named = path.with_suffix("") if path.suffix == ".gz" else path
    for kind in get_args(Format):
        if named.suffix.lower() == f".{kind}":
            return kind  # type: ignore[no-any-return]
    raise InputError("does not end in .mps or .lp (or .mps.gz, .lp.gz)", path)


@contextmanager
def _complete_or_not_at_all(path: Path, kind: Format) -> Iterator[Path]:
    """A file to write, which takes its place, compressed if need be, when it is complete."""
    # A place that cannot be written is found out before the model is built.
    with OutputFile(path) as file:
        try:
            folder = path.resolve().parent if is_file(path) else None
            with TemporaryDirectory(dir=folder, prefix=f".{path.name}.") as beside:
                plain = Path(beside) / f"model.{kind}"
                yield plain
                data = plain.read_bytes()
        except OSError as error:
            raise OutputError(f"cannot be written: {error.strerror or error}", path) from None
        file.write(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
        file.place()
