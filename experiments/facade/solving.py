"""One call from a model and a cluster, however they are given, to a plan and its gap."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Unpack, cast

from placegap.experiments.running.certifying import bound_to_keep
from placegap.experiments.running.placing import (
    Attempt,
    Stopped,
    choose_semantics,
    given_plan,
    judged_plan,
    place,
    plan_file_at,
    with_load_limit,
)
from placegap.experiments.running.pool import run_here
from placegap.experiments.running.rules import Rules
from placegap.experiments.running.sources import as_layers, check_rates, find_model
from placegap.experiments.show.place_report import named_placement, plan_notes, print_result
from placegap.experiments.show.rendering import output
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.files.document import Document
from placegap.instances.files.plan_file import save_plan
from placegap.instances.problem import Cluster, Graph, Instance, MemoryRule, Plan, Semantics
from placegap.instances.problem.modules import row_of_layers
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.method import Limits
from placegap.solvers.core.progress import Control
from placegap.solvers.core.result import Result, Status
from placegap.solvers.solving.known_bounds import Claim, claims_of, refuted_by
from placegap.solvers.solving.run_method import DEFAULT_METHOD, LimitOptions, SolveOptions


@dataclass(frozen=True)
class Solution:
    """A result with its instance; `print` shows it as a table."""

    instance: Instance  #: What was solved: the finer instance, where the method split ops
    result: Result  #: All that is known: method, status, what the bound rests on, times, versions
    #: What went wrong on the way, and rules under which a method ran in place of the usual ones.
    warnings: tuple[str, ...] = ()
    #: What the files of the model and of the start claim; nothing of it is in the result.
    claims: tuple[Claim, ...] = ()

    @property
    def status(self) -> Status:
        """``optimal``, ``gap_met``, ``feasible``, ``infeasible``, ``bound`` or ``no_plan``."""
        return self.result.status

    @property
    def value_ns(self) -> int | None:
        """The value of the plan by the referee; None without a plan."""
        return self.result.value

    @property
    def bound_ns(self) -> int | None:
        """Lower bound on the value of every plan; None if nothing is proven."""
        return self.result.bound_value

    @property
    def bound_origin(self) -> str:
        """What proves the bound; ``recorded: ...`` where the corpus records it."""
        return self.result.bound_origin

    @property
    def tokens(self) -> int | None:
        """Under max_context, the number of tokens that the plan has room for."""
        return self.result.value_tokens

    @property
    def gap(self) -> float | None:
        """(value - bound) / value.

        None if the method proved no bound and none is recorded: the only bound is then a trivial
        one, such as the critical path, which says little about the plan.
        """
        return self.result.gap

    @property
    def plan(self) -> Plan | None:
        """The plan, as indices of ops and devices."""
        return self.result.plan

    @property
    def placement(self) -> dict[str, str | list[str]]:
        """The device of each op by name, or the devices that share it; empty without a plan."""
        return {} if self.plan is None else named_placement(self.instance, self.plan)

    @property
    def notes(self) -> tuple[str, ...]:
        """Why devices are unused, if any, and options that would use them."""
        return plan_notes(self.instance, self.result)

    def save(self, path: str | Path) -> None:
        """Write the plan as ``placegap place -o`` does.

        Raises
        ------
        InputError
            If there is no plan.
        """
        if self.plan is None:
            raise InputError(f"{self.instance.name}: there is no plan to write")
        result = self.result
        save_plan(
            self.instance,
            self.plan,
            result.semantics,
            path,
            result.method,
            value=result.value,
            bound=bound_to_keep(self.instance, result),
        )

    def __str__(self) -> str:
        text = io.StringIO()
        print_result(output(text), self.instance, self.result, self.claims)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


class RulesAndOptions(SolveOptions, total=False):
    """Single rules, as options of ``placegap place``, and what `run_method` takes."""

    plans: str | None
    channels: str | None
    transfers: str | None
    load: str | None
    replicas: bool | None
    levels: int | None
    subgraphs: int | None
    memory: MemoryRule | None
    schedule: str | None
    stages_per_device: int | None
    microbatches: int | None
    sending: str | None
    degrees: str | None
    recompute: str | None
    sharding: str | None
    bubble: bool | None
    at_most_ns: int | None


def solve(
    model: str | Path | Graph | Document | Instance,
    cluster: str | Path | Cluster | None = None,
    objective: str | Semantics | None = None,
    *,
    method: str | None = None,
    params: Mapping[str, object] | None = None,
    start: Plan | str | Path | None = None,
    at_most: float | None = None,
    **options: Unpack[RulesAndOptions],
) -> Solution:
    """Place a model on a cluster, as ``placegap place`` does, in this process.

    Parameters
    ----------
    model : str, Path, Graph, Document or Instance
        A name of the corpus, a file of any readable format, a model to trace (``hf:gpt2``), or what
        `placegap.instances` made.
    cluster : str, Path or Cluster, optional
        Name of a shipped cluster, a file, or a cluster; by default the model's own devices.
    objective : str or Semantics, optional
        ``makespan``, ``max_load``, ``max_load_fwd_bwd``, ``latency_subgraphs``,
        ``pipeline_iteration``, ``hybrid_pipeline`` or ``max_context``, or all rules at once. By
        default the file's own. A decode step has makespan, other traced models max_load, and all
        other models makespan.
    method : str, optional
        A name of ``placegap.solvers.METHODS``; by default ``auto``: the best exact
        method for this kind of problem, with a heuristic search in parallel.
    params : mapping, optional
        The method's own parameters.
    start : Plan, str or Path, optional
        A plan, or the file of one, to start from: the result is no worse.
    at_most : float, optional
        Under max_context: limit on loads, as a multiple of the optimal max_load.
    plans, channels, transfers, load, replicas, levels, subgraphs, memory : optional
    schedule, stages_per_device, microbatches, sending, degrees, recompute, sharding : optional
    bubble, at_most_ns : optional
        Single rules, as the options of ``placegap place``.
    time_limit_s, gap, seed : float, float, int, optional
        Time limit (60 s) and relative gap at which the method stops, and its random seed.
    progress : callable, optional
        Called with a `placegap.solvers.core.progress.Progress` for each better plan or bound.
    on_plan, on_bound : callable, optional
        Called with ``(value_ns, plan or None)`` and with ``(bound_ns, by)`` whenever one is better.
        If one returns False or raises `StopSearch`, the search ends with the plan so far; this
        works only if `solve` is called from the main thread.

    Raises
    ------
    InputError
        One line that names what cannot be read, found or combined.
    RuntimeError
        If a method fails before it has found a plan.

    Examples
    --------
    >>> import placegap
    >>> found = placegap.solve("zfnet512", "moirai-intra-server", "max_load", method="ideal-dp")
    >>> found.status, found.value_ns == found.bound_ns, found.gap
    ('optimal', True, 0.0)
    """
    progress = options.pop("progress", None)
    on_plan, on_bound = options.pop("on_plan", None), options.pop("on_bound", None)
    given = cast("dict[str, Any]", options)
    named = {field.name: given.pop(field.name) for field in fields(Rules) if field.name in given}
    for name in given.keys() - LimitOptions.__annotations__:
        raise TypeError(f"solve() got an unexpected keyword argument {name!r}")
    Limits(**given)  # refuses what is no limit
    rules = Rules(None if isinstance(objective, Semantics) else objective, **named)
    if isinstance(objective, Semantics):
        if rules != Rules():
            raise InputError("give either the semantics or single rules, not both")
        rules = Rules(**objective.model_dump())
    instance = row_of_layers(_instance(model, cluster, layers=rules.is_hybrid), rules.objective)
    from_file = None if start is None or isinstance(start, Plan) else plan_file_at(str(start))
    stated = None if from_file is None else from_file.semantics
    chosen = choose_semantics(rules, instance, method, params, stated=stated)
    semantics = chosen.semantics
    first = Attempt(
        source=instance,
        semantics=semantics,
        method=method or DEFAULT_METHOD,
        params=params or {},
        **given,
    )
    if at_most is not None:
        first, _ = with_load_limit(first, at_most, here=True)
        semantics = first.semantics
    known = None
    if isinstance(start, Plan):
        known = judged_plan(instance, semantics, start)
    elif start is not None:
        known = given_plan(instance, semantics, str(start))
    name = str(model) if isinstance(model, str | Path) else ""
    plan_files = {} if from_file is None else {str(start): from_file.bound}
    claims = claims_of(instance, semantics, name, plan_files)
    control = Control(on_plan, on_bound, progress)
    listener = progress if on_plan is None and on_bound is None else control.pass_on
    try:
        with control.region:
            result, warnings = place(first, start=known, on_progress=listener, pool=run_here)
    except Stopped as stopped:
        if not control.is_stopped or stopped.best is None:
            raise KeyboardInterrupt from None
        result, warnings = stopped.best, ()
    if chosen.note:
        warnings = (chosen.note, *warnings)
    fine = instance if result.split is None else result.split.fine
    warnings += refuted_by(result, instance, claims)
    return Solution(fine, result, warnings, tuple(claims))


def _instance(
    model: str | Path | Graph | Document | Instance,
    cluster: str | Path | Cluster | None,
    *,
    layers: bool,
) -> Instance:
    found = cluster if isinstance(cluster, Cluster | None) else load_cluster(str(cluster))
    if isinstance(model, Instance):
        return model if found is None else Document.of(model).instance(found)
    if isinstance(model, Graph):
        model = Document(name=model.name, graph=model)
    if not isinstance(model, Document):
        check_rates(str(model), found)
    document = model if isinstance(model, Document) else find_model(str(model))
    if found is None and document.cluster is None:
        raise InputError(
            f"{document.name} has no default cluster: name one, or pass a file or a Cluster"
        )
    if layers:
        document = as_layers(document, found or document.cluster)
    return document.instance(found)
