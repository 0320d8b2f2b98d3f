"""Ops, edges and communication ratio of a model before and after every transform."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from placegap.instances.problem import Instance, Semantics
from placegap.instances.problem.mean_costs import communication_ratio, flow_of
from placegap.instances.reading.errors import InputError
from placegap.instances.transforms.table import TRANSFORMS, Claim, coarsen

HEAD = ("transform", "ops", "edges", "CCR", "fewer ops", "best plan")


class TransformRow(NamedTuple):
    """What a transform made of an instance; no figures where it is not for the semantics."""

    transform: str
    ops: int | None = None
    edges: int | None = None
    ccr: float | None = None
    claim: Claim | None = None


def size_of(instance: Instance) -> tuple[int, int, float]:
    """Ops, edges and communication to computing ratio (Celeritas, equation 1) of an instance."""
    ratio = round(communication_ratio(flow_of(instance.arrays)), 3)
    return instance.num_ops, len(instance.graph.edges), ratio


def table_rows(
    instance: Instance,
    semantics: Semantics,
    params: Mapping[str, Mapping[str, object]] | None = None,
) -> list[TransformRow]:
    """A row for the instance as it is ("none") and one per transform."""
    # `params` of transforms by name.
    rows = [TransformRow("none", *size_of(instance))]
    for name in TRANSFORMS:
        chosen = (params or {}).get(name, {})
        label = " ".join((name, *(f"{key}={value}" for key, value in chosen.items())))
        try:
            found = coarsen(instance, name, chosen, semantics)
        except InputError:
            rows.append(TransformRow(label))
            continue
        rows.append(TransformRow(label, *size_of(found.merge.coarse), found.claim))
    return rows


def row_texts(row: TransformRow, num_ops: int) -> tuple[str, ...]:
    """The cells of a row under `HEAD`; `num_ops` are those of the instance as it is."""
    if row.ops is None:
        return row.transform, "n/a", "", "", "", ""
    fewer = "" if row.claim is None else f"{num_ops / row.ops:.2f}-fold"
    sizes = (f"{row.ops:,}", f"{row.edges:,}", f"{row.ccr:.3g}")
    return row.transform, *sizes, fewer, row.claim or ""
