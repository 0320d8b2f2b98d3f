"""How a method that split ops says so."""

from __future__ import annotations

from dataclasses import replace

from placegap.instances.transforms.op_splitting import OpSplit
from placegap.solvers.core.result import Outcome


def outcome_of_split(split: OpSplit, outcome: Outcome) -> Outcome:
    """An outcome on the finer instance, labelled as such.

    Examples
    --------
    >>> from placegap.instances import Plan, example
    >>> from placegap.instances.transforms.op_splitting import split_ops
    >>> from placegap.instances.transforms.op_splitting import Cut
    >>> split = split_ops(example(), {1: Cut("batch", 2)})
    >>> outcome_of_split(split, Outcome(Plan.on([0] * 6))).message
    'the plan of another instance, fd-dps-figure-3-split: 1 op split into 2 parts'
    """
    message = f"{outcome.message}; " if outcome.message else ""
    plan = "no plan" if outcome.plan is None else "the plan"
    return replace(
        outcome,
        message=f"{message}{plan} of another instance, {split.fine.name}: {split.summary}",
        details={
            **outcome.details,
            "split_ops": split.num_split,
            "split_parts": split.num_parts,
        },
        split=split,
    )
