"""Every model, row by row, on four ops: a change of any constraint family shows in a diff.

``UPDATE_GOLDEN=1 pytest tests/formulations/test_golden.py`` writes the files anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pyomo.environ as pyo
import pytest

from placegap.formulations import archer, latency_ip, m_sct, moirai, pesto, throughput_ip
from placegap.formulations.getf import lp as getf_lp
from placegap.formulations.getf import milp as getf
from placegap.formulations.shared.devices import device_groups
from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    Instance,
    LatencySubgraphs,
    Link,
    MaxLoadFwdBwd,
    Op,
    Semantics,
)
from placegap.instances.problem.semantics import parse_semantics

GOLDEN = Path(__file__).parent / "golden"


def four_ops(*, host: bool = False) -> Instance:
    """p feeds q and r one tensor, r feeds s; q and s are colocated; two equal devices are tight.

    With a host, s is a backward op, and each device is in a server of its own.
    """
    times = {"gpu": 4, "cpu": 9} if host else {"gpu": 4}
    ops = (
        Op(name="p", time_ns=times, resident_bytes=2, parameter_bytes=3),
        Op(name="q", time_ns={"gpu": 3}, resident_bytes=2, colocation="pair"),
        Op(name="r", time_ns=times, resident_bytes=1),
        Op(name="s", time_ns={"gpu": 2}, resident_bytes=1, colocation="pair", backward=host),
    )
    edges = (
        Edge(producer="p", consumer="q", bytes=5, tensor="out"),
        Edge(producer="p", consumer="r", bytes=5, tensor="out"),
        Edge(producer="r", consumer="s", bytes=2),
    )
    devices = tuple(
        Device(name=f"g{k}", kind="gpu", memory_bytes=4, server=f"server{k}" if host else None)
        for k in range(2)
    )
    if host:
        devices = (*devices, Device(name="h", kind="cpu", is_host=True, server="server0"))
    links = tuple(
        Link(source=a.name, target=b.name, bandwidth_bytes_per_s=10**9)
        for a in devices
        for b in devices
        if a != b
    )
    return Instance(
        name="four",
        graph=Graph(name="four", ops=ops, edges=edges),
        cluster=Cluster(name="two", devices=devices, links=links),
    )


PLAIN, HOST = four_ops(), four_ops(host=True)


def makespan(channels: str) -> Semantics:
    return parse_semantics({"objective": "makespan", "channels": channels})


def load(**fields: object) -> Semantics:
    return parse_semantics({"objective": "max_load", **fields})


def latency(subgraphs: int) -> Semantics:
    return LatencySubgraphs(subgraphs=subgraphs)


MODELS: dict[str, Callable[[], pyo.ConcreteModel]] = {
    "moirai-as-published": lambda: moirai.build(PLAIN, makespan("port"), "as_published"),
    **{
        f"moirai-{channels}": lambda c=channels: moirai.build(  # type: ignore[misc]
            PLAIN, makespan(c), symmetry=True
        )
        for channels in ("free", "link", "port", "half_duplex")
    },
    "pesto-as-published": lambda: pesto.build(PLAIN, makespan("link"), "as_published"),
    "pesto-strengthened": lambda: pesto.build(PLAIN, makespan("link")),
    "getf-lp": lambda: getf_lp.build_lp(PLAIN, device_groups(PLAIN)),
    "getf-milp": lambda: getf.build(PLAIN),
    "m-sct": lambda: m_sct.build(PLAIN),
    "m-sct-truncated": lambda: m_sct.build(PLAIN, truncated=True),
    **{
        f"throughput-{plans}-{rule}": lambda p=plans, r=rule: throughput_ip.build(  # type: ignore[misc]
            HOST, load(plans=p, load=r), symmetry=True
        )
        for plans, rule in (("any", "add"), ("convex", "add"), ("chain", "overlap"))
    },
    "throughput-replicas": lambda: throughput_ip.build(PLAIN, load(replicas=True), symmetry=True),
    "throughput-servers": lambda: throughput_ip.build(HOST, load(levels=2), symmetry=True),
    "throughput-fwd-bwd": lambda: throughput_ip.build(HOST, MaxLoadFwdBwd(), symmetry=True),
    "archer-exact": lambda: archer.build_exact(PLAIN, load(plans="chain")),
    "archer-three-blocks": lambda: archer.build_three_blocks(HOST, load(plans="chain")),
    "archer-bottleneck": lambda: archer.build_bottleneck(PLAIN, load(plans="chain"), index=2),
    "latency-as-published": lambda: latency_ip.build(HOST, latency(1), "as_published"),
    "latency-strengthened": lambda: latency_ip.build(HOST, latency(2), symmetry=True),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_its_golden_file_row_by_row(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    written = tmp_path / "model.lp"
    model.write(str(written), io_options={"symbolic_solver_labels": True})
    golden = GOLDEN / f"{name}.lp"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(written.read_text())
    assert written.read_text() == golden.read_text()
    rows = model.component_data_objects(pyo.Constraint, active=True)
    families = dict.fromkeys(row.parent_component().name for row in rows)
    text = golden.read_text()
    assert [name for name in families if not re.search(rf"_{name}(_|\()", text)] == []
