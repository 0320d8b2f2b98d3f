"""Charts and pages hold every device, need no network, and no name can break out of them."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from draws.hostile import hostile_diamond

import placegap.experiments.show.page as page_module
from placegap.experiments.show.anatomy import Anatomy, take_apart
from placegap.experiments.show.page import page_data, plan_page
from placegap.instances import Graph, Instance, Plan, example
from placegap.instances.problem import Makespan, PipelineIteration, Semantics
from placegap.instances.reading.printable import printable

BAD = '</script><script>alert(1)</script><img src=x onerror="alert(2)"> {{js}} $x_1$ \u2028 &lt;'


def apart(instance: Instance, plan: Plan, rules: Semantics) -> Anatomy:
    found = take_apart(instance, plan, rules, num_moves=0)
    assert found is not None
    return found


class Tags(HTMLParser):
    """The tags of a page, and the attributes that load or run something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.dangerous: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append(tag)
        self.dangerous += [a for a in attrs if a[0] in ("src", "href") or a[0].startswith("on")]


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    loaded: dict[str, Any] = json.loads(found[1])
    return loaded


@pytest.mark.parametrize("rules", [Makespan(memory="peak"), PipelineIteration()])
def test_a_name_stays_text_wherever_it_stands(rules: Semantics) -> None:
    page = plan_page(apart(hostile_diamond(BAD), Plan.on([0, 0, 1, 1]), rules))
    tags = Tags(page)
    assert tags.dangerous == []
    assert tags.opened.count("script") == 2  # the data and the page's own
    assert "img" not in tags.opened
    assert printable(BAD) in " ".join(data_of(page)["texts"] + data_of(page)["rows"])


def test_a_page_loads_nothing_and_says_so() -> None:
    page = plan_page(apart(example(), Plan.on([0, 0, 1, 0]), Makespan()))
    assert "default-src 'none'" in page
    assert not re.search(r"https?://|//cdn|@import|url\(", page)
    assert page == plan_page(apart(example(), Plan.on([0, 0, 1, 0]), Makespan()))


def test_the_data_of_a_page_are_the_bars_of_the_plan() -> None:
    # op 3 runs from 25 to 35, after 20 ns on the link (test_gantt)
    data = page_data(apart(example(), Plan.on([0, 0, 1, 0]), Makespan()))
    rows = [data["bars"][at : at + 6] for at in range(0, len(data["bars"]), 6)]
    found = [(row[0], row[1], row[2]) for row in rows if data["texts"][row[3]] == "op3"]
    assert found == [(2, 25, 10)]
    assert data["end"] == 53
    assert data["graph"]["x"] == [0, 1, 1, 2]


def test_dots_of_a_large_graph_are_parts_on_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    # four ops of two scopes: a/ on one device, b/ on both
    monkeypatch.setattr(page_module, "MOST_DOTS", 3)
    names = ["a/op1", "a/op2", "b/op3", "b/op4"]
    renamed = zip(example().graph.ops, names, strict=True)
    ops = tuple(op.model_copy(update={"name": name}) for op, name in renamed)
    new = dict(zip((op.name for op in example().graph.ops), names, strict=True))
    edges = tuple(
        e.model_copy(update={"producer": new[e.producer], "consumer": new[e.consumer]})
        for e in example().graph.edges
    )
    graph = Graph(name="scoped", ops=ops, edges=edges)
    instance = Instance(name="scoped", graph=graph, cluster=example().cluster)
    data = page_data(apart(instance, Plan.on([0, 0, 1, 0]), Makespan()))
    dots = [data["texts"][number] for number in data["graph"]["name"]]
    assert dots == ["a (2 ops)", "b (1 op)", "b (1 op)"]
    assert data["graph"]["device"] == [0, 1, 0]
    assert data["graph"]["edges"] == [0, 1, 0, 2, 1, 2]
