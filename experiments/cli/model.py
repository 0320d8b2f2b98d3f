"""``placegap model``: a paper's model of an instance, in a file or in figures, without a plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placegap.experiments.cli.options import (
    JsonOption,
    Model,
    TimedOptions,
    inputs_of,
    load_instance,
    output_option,
    source_of,
)
from placegap.experiments.running.rules import Rules
from placegap.experiments.show.figures import format_gap
from placegap.experiments.show.rendering import output, plain_table, print_json, spinner
from placegap.instances.files.output_files import attempt, reserve_outputs
from placegap.instances.problem.additive_memory import relax_memory
from placegap.instances.reading.errors import InputError

if TYPE_CHECKING:
    from placegap.solvers.models.explain import Component, Explained, Size

LP_S = 60.0  # seconds for the linear relaxation


@dataclass(frozen=True, kw_only=True)
class FormulationOptions(TimedOptions):
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="moirai, pesto, throughput_ip, latency_ip, archer, getf or m_sct."
        ),
    ]
    model: Model
    rules: Rules
    form: Annotated[
        str | None, typer.Option("--form", help="Which form of the model, such as as_published.")
    ] = None
    horizon_ns: Annotated[
        int | None,
        typer.Option(
            "--horizon-ns",
            metavar="N",
            min=0,
            help="Leave out plans that are worse than this value.",
        ),
    ] = None
    symmetry: Annotated[
        bool, typer.Option("--symmetry", help="Keep one of plans that swap identical devices.")
    ] = False
    write: Annotated[
        Path | None,
        output_option(
            "--write", metavar="FILE", help="Write it to this .mps or .lp file (or .gz of it)."
        ),
    ] = None
    explain: Annotated[
        bool,
        output_option(
            "--explain",
            help="Print sizes per component, before and after presolve, the value of the linear"
            " relaxation, and the integrality gap.",
        ),
    ] = False
    as_json: JsonOption = False


def model_command(options: FormulationOptions) -> None:
    """Build a paper's optimization model of an instance: write it, or explain its size.

    The integrality gap is (value - LP) / value, for the value that the corpus records, else for
    the best plan of the fast placers.
    """
    from placegap.experiments.running.placing import choose_semantics
    from placegap.solvers.core.method import Limits, Task
    from placegap.solvers.core.registry import find_method
    from placegap.solvers.models.explain import (
        METHOD_OF,
        build_model,
        explain_model,
        formulation_named,
    )
    from placegap.solvers.models.export import measure, model_format, save_model
    from placegap.solvers.solving.known_bounds import recorded_value_ns

    formulation_named(options.name)
    name = options.name.replace("-", "_")
    if options.write is not None:
        model_format(options.write)
    reserve_outputs(options.write, inputs=inputs_of(options))
    given = {
        key: value
        for key in ("form", "horizon_ns", "symmetry")
        if (value := getattr(options, key)) not in (None, False)
    }
    instance = load_instance(source_of(options))
    method = find_method(METHOD_OF[name])
    params = {key: given[key] for key in given if key in method.params.model_fields}
    try:
        chosen = choose_semantics(options.rules, instance, method.name, params)
    except InputError as error:
        raise InputError(str(error).partition("; leave out --method")[0]) from None
    instance, semantics = relax_memory(instance, chosen.semantics)
    with spinner(f"building {name} of {instance.name}"):
        model = build_model(name, instance, semantics, given)
    rows, columns, unit_ns = measure(model)
    content: dict[str, Any] = {
        "instance": instance.name,
        "semantics": semantics.model_dump(mode="json"),
        "model": name,
        **given,
        **{"rows": rows, "columns": columns, "unit_ns": unit_ns},
    }
    if options.write is not None:
        with attempt(options.write):
            save_model(model, options.write)
        content["path"] = str(options.write)
    explained = None
    if options.explain:
        with spinner(f"explaining {name} of {instance.name}"):
            recorded_ns = recorded_value_ns(instance, semantics)
            task = Task(instance, semantics, Limits(LP_S))
            explained = explain_model(model, task, recorded_ns)
        content |= explained_object(explained)
    if options.as_json:
        print_json(content)
        return
    where = f"{options.write}: " if options.write is not None else ""
    said = ", ".join(f"{key}={value}" for key, value in given.items())
    title = f"{where}{name}{f' ({said})' if said else ''} of {instance.name}, {semantics.label}"
    unit = f"{unit_ns:.15g} ns" if semantics.unit == "ns" else semantics.text(int(unit_ns))
    size = f"{rows} rows, {columns} columns; 1 unit of the objective is {unit}"
    output().print(f"{title}: {size}", soft_wrap=True)
    if explained is not None:
        print_explained(explained)


def explained_object(found: Explained) -> dict[str, Any]:
    """What ``--json`` prints of an explained model."""
    return {
        "components": [
            {**part._asdict(), "before": part.before._asdict(), "after": part.after._asdict()}
            for part in found.components
        ],
        "total": {"before": found.before._asdict(), "after": found.after._asdict()},
        "lp_ending": found.ending,
        "lp_ns": found.lp_ns,
        "value_ns": found.value_ns,
        "value_by": found.value_by,
        "integrality_gap": found.integrality_gap,
    }


def print_explained(found: Explained) -> None:
    """A line per component, and the linear relaxation."""
    sizes = ("columns", "nonzeros")
    head = ("component", "of each", "states", "rows", *sizes, "presolved: rows", *sizes)
    used = (part for part in found.components if any((*part.before, *part.after)))
    rows = [*map(_line, used)]
    rows.append(("total", "", "", *_figures(found.before), *_figures(found.after)))
    output().print(plain_table(None, head, rows))
    lp = found.ending if found.lp_ns is None else f"{found.lp_ns:,.1f} ns"
    output().print(f"LP      {lp}")
    if found.value_ns is not None and found.integrality_gap is not None:
        output().print(f"value   {found.value_ns:,} ns ({found.value_by})")
        output().print(f"gap     {format_gap(found.integrality_gap)} between them")


def _line(part: Component) -> tuple[str, ...]:
    head, _, text = part.states.partition(":")  # "Moirai (6): ...", or "x[i, k]: ..."
    says = head if part.before.rows else text.strip().partition(";")[0]
    sizes = (*_figures(part.before), *_figures(part.after))
    return part.name, part.sets, says.partition(",")[0], *sizes


def _figures(size: Size) -> Iterator[str]:
    return (str(number) if number else "" for number in size)
