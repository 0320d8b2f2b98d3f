"""Why two methods change places: what other clocks say of the same two plans."""

from __future__ import annotations

from typing import NamedTuple

from placegap.experiments.running.other_clocks import FREE_CHANNELS, NO_TRANSFERS
from placegap.experiments.studies.gaps import GapCell

SECONDS = 1e9

NO_PLAN_HERE = "the first has no plan here"
CONTENTION = "contention"
TRANSFERS = "transfers"
PLANS = "the plans themselves"

KINDS = {
    CONTENTION: "with free channels the paper's order comes back",
    TRANSFERS: "without any, the two would not change places",
    PLANS: "without any transfers they are the other way round, too",
    NO_PLAN_HERE: "it does not fit, or its method found none",
}
"""Kind of cause -> what it means, in the order in which they are told."""


class Cause(NamedTuple):
    """A kind of `KINDS`, and the sentence with the figures of the two plans."""

    kind: str
    told: str


def cause(faster: GapCell, slower: GapCell) -> Cause | None:
    """What makes the paper's slower method the faster one with us, as far as clocks can tell.

    The same two plans run again with free channels, and then without any transfers. The first clock
    under which the paper's order comes back names the regime; None where a run has no such clocks.

    Parameters
    ----------
    faster, slower : GapCell
        Our runs of the methods that are faster and slower in the paper.

    Examples
    --------
    >>> told_by_clocks("A", "B", {"free_channels_ns": (3, 4), "no_transfers_ns": (2, 1)}).told
    'contention: with free channels A takes 3e-09 s and B 4e-09 s, the order of the paper'
    """
    names = faster.cell.label, slower.cell.label
    for run, name in zip((faster, slower), names, strict=True):
        if run.value_ns is None and "split_value_ns" not in run.details:
            told = f"{name} has no plan here" + (f": {run.message}" if run.message else "")
            return Cause(NO_PLAN_HERE, told)
    clocks = {}
    for clock in (FREE_CHANNELS, NO_TRANSFERS):
        pair = faster.details.get(clock), slower.details.get(clock)
        if pair[0] is None or pair[1] is None:
            return None
        clocks[clock] = (int(pair[0]), int(pair[1]))
    return told_by_clocks(*names, clocks)


def told_by_clocks(first: str, second: str, clocks: dict[str, tuple[int, int]]) -> Cause:
    """The sentence for two plans' times under both clocks; `first` is ahead in the paper."""
    free, none = clocks[FREE_CHANNELS], clocks[NO_TRANSFERS]
    if free[0] < free[1]:
        return Cause(
            CONTENTION,
            f"contention: with free channels {first} takes {free[0] / SECONDS:.4g} s and {second}"
            f" {free[1] / SECONDS:.4g} s, the order of the paper",
        )
    times = f"{first} {none[0] / SECONDS:.4g} s and {second} {none[1] / SECONDS:.4g} s"
    if none[0] <= none[1]:
        return Cause(TRANSFERS, f"transfers: without any, {times} would not change places")
    return Cause(PLANS, f"the plans themselves: without any transfers {times} would, too")
