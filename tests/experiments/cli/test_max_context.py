"""``--objective max_context``: tokens wherever a value is said, and one line for what is no use."""

import json
from pathlib import Path

import pytest
from draws import draw

import placegap
from placegap.experiments.cli import main
from placegap.instances import Cache, Instance, MaxContext, Op, Plan
from placegap.instances.files.document import Document, save_document
from placegap.instances.files.plan_file import load_stated_plan, save_plan

Capture = pytest.CaptureFixture[str]


def layers() -> Instance:
    """Six layers of 10 bytes, 1 byte a token and 1 ns, of which the first has 30 bytes more."""
    ops = tuple(
        Op(
            name=f"layer{i}",
            time_ns={"gpu": 1},
            resident_bytes=10 + 30 * (i == 0),
            caches=(Cache(token_bytes=1),),
        )
        for i in range(6)
    )
    return draw.row(ops, draw.devices(["gpu"] * 2, lambda k: 100), host_time_ns=0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_document(Document.of(layers()), tmp_path / "six.json")
    return tmp_path / "six.json"


def test_place_verify_show_and_compare_say_tokens(
    model: Path, tmp_path: Path, capsys: Capture
) -> None:
    plan, even = str(tmp_path / "plan.json"), str(tmp_path / "even.json")
    asked = ["place", str(model), "--objective", "max_context"]
    assert main([*asked, "-o", plan, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # 2 layers, (100 - 50) / 2 = 25, and 4, (100 - 40) / 4 = 15; 3 and 3: (100 - 60) / 3 = 13
    assert (found["tokens"], found["tokens_bound"], found["proved"]) == (15, 15, True)
    assert sorted(found["tokens_per_device"].values()) == [15, 25]
    assert main(["verify", str(model), plan]) == 0
    out = capsys.readouterr().out
    assert "15 tokens (both referees)" in out
    assert " ns" not in out.partition("value")[2]
    rules = MaxContext(plans="chain")
    save_plan(layers(), Plan.on([0, 0, 0, 1, 1, 1]), rules, even, "by hand", value=13)
    assert main(["show", plan, "--model", str(model)]) == 0
    assert "fills up first: with 15 tokens it holds" in capsys.readouterr().out
    assert main(["compare", even, plan, "--model", str(model)]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "value" in line)
    assert ("13 tokens" in row, "15 tokens" in row) == (True, True)


def test_whole_layers_cost_tokens_and_that_many_are_more_op_by_op(
    model: Path, capsys: Capture
) -> None:
    # three layers of two ops, 10 bytes and 1 byte a token each, on two cards of 100 bytes: a card
    # has two whole layers, (100 - 40) / 4 = 15 tokens, or three ops, (100 - 30) / 3 = 23
    graph = layers().graph
    halves = tuple(
        op.model_copy(update={"module": f"net.h.{i // 2}", "resident_bytes": 10})
        for i, op in enumerate(graph.ops)
    )
    instance = layers().with_graph(graph.model_copy(update={"ops": halves}))
    path = str(model.with_name("halves.json"))
    save_document(Document.of(instance), path)
    asked = ["place", path, "--objective", "max_context", "--plans", "chain", "--quiet"]
    assert main([*asked, "--granularity", "layer", "--price-layers"]) == 0
    out = capsys.readouterr().out
    assert "value   15 tokens" in out
    # (23 - 15) / 15
    assert "layer   kept whole; the best split gives 23 tokens, 53.3 % more" in out


def test_a_stored_value_that_is_wrong_is_told_in_tokens(
    model: Path, tmp_path: Path, capsys: Capture
) -> None:
    wrong = str(tmp_path / "wrong.json")
    rules = MaxContext(plans="chain")
    save_plan(layers(), Plan.on([0, 0, 0, 1, 1, 1]), rules, wrong, "by hand", value=99)
    assert main(["show", wrong, "--model", str(model)]) == 0
    assert "99 tokens, but the referee finds 13 tokens" in capsys.readouterr().err


def test_a_load_of_so_many_times_the_least(model: Path, capsys: Capture) -> None:
    # the least load is 3 ns, of 3 layers; 1.34 times that allows 4
    limited = placegap.solve(model, objective="max_context", at_most=1.0, plans="chain")
    assert (limited.tokens, limited.status) == (13, "optimal")
    wider = placegap.solve(model, objective="max_context", at_most=1.34, plans="chain")
    assert (wider.tokens, wider.status) == (15, "optimal")
    asked = ["place", str(model), "--objective", "max_context", "--at-most", "1"]
    assert main(asked) == 0
    out, err = capsys.readouterr()
    assert "value   13 tokens" in out
    assert "at most 3 ns of load, 1 times 3 ns" in err


def test_the_factor_of_the_least_load_is_the_decimal_that_was_written() -> None:
    # 100 ns is the least load: a, b | c, d, with room for 30 tokens. 1.15 times that are 115 ns,
    # and 114 in floating point: only a, c | b, d has 115, and room for 40
    rows = (("a", 60, 10, 1), ("b", 40, 0, 0), ("c", 55, 10, 0), ("d", 45, 60, 1))
    ops = tuple(
        Op(
            name=name,
            time_ns={"gpu": time},
            resident_bytes=size,
            caches=(Cache(token_bytes=1),) * token,
        )
        for name, time, size, token in rows
    )
    devices = draw.devices(["gpu"] * 2, lambda k: 100)
    instance = draw.instance_of("four", ops, [], devices)
    for at_most, tokens in ((1.14, 30), (1.15, 40)):
        found = placegap.solve(instance, objective="max_context", plans="any", at_most=at_most)
        assert (found.tokens, found.status) == (tokens, "optimal")


def test_files_and_json_state_tokens_as_tokens_and_older_files_are_read(
    model: Path, tmp_path: Path, capsys: Capture
) -> None:
    plan = tmp_path / "plan.json"
    command = ["place", str(model), "--objective", "max_context", "--plans", "chain", "--json"]
    assert main([*command, "-o", str(plan)]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["value_tokens"], content["bound_tokens"]) == (15, 15)
    assert not {"value_ns", "bound_ns"} & content.keys()
    stored = json.loads(plan.read_text())
    assert stored["value_tokens"] == stored["bound"]["bound_tokens"] == 15
    assert "value_ns" not in {*stored, *stored["bound"]}
    # before, tokens were nanoseconds below 0
    stored["value_ns"] = -stored.pop("value_tokens")
    stored["bound"]["bound_ns"] = -stored["bound"].pop("bound_tokens")
    plan.write_text(json.dumps(stored))
    read = load_stated_plan(layers(), plan)
    assert (read.value, read.bound and read.bound.bound) == (15, 15)
    assert main(["verify", str(model), str(plan)]) == 0
    assert "15 tokens (both referees)" in capsys.readouterr().out
    stored["value_tokens"], stored["semantics"] = 15, {"objective": "makespan"}
    del stored["value_ns"], stored["bound"]
    plan.write_text(json.dumps(stored))
    assert main(["verify", str(model), str(plan)]) == 2
    assert "value_tokens" in capsys.readouterr().err
    stored["semantics"], stored["value_ns"] = {"objective": []}, -15
    plan.write_text(json.dumps(stored))
    assert main(["verify", str(model), str(plan)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
