"""Rules files: the package's own, a user's, and what is wrong with others."""

from itertools import chain
from pathlib import Path

import pytest

from placegap.instances.transforms.moirai_fusion import default_rules, load_rules


def write(folder: Path, text: str) -> Path:
    path = folder / "rules.yaml"
    path.write_text(text)
    return path


def test_the_default_rules_begin_with_table_i() -> None:
    # Moirai, Table I
    assert default_rules().rules[:3] == (
        ("conv", "bn"),
        ("conv", "bn", "relu"),
        ("conv", "bn", "add", "relu"),
    )


def test_every_name_of_the_default_rules_stands_for_op_types() -> None:
    rules = default_rules()
    assert set(chain.from_iterable(rules.rules)) <= set(rules.kinds)


def test_every_name_has_an_op_type_that_onnx_knows() -> None:
    defs = pytest.importorskip("onnx.defs", reason="needs the onnx extra")
    known = {schema.name for schema in defs.get_all_schemas()}
    known.add("Swish")  # since opset 24
    without = [name for name, types in default_rules().kinds.items() if not known & set(types)]
    assert without == []


def test_a_run_of_steps_within_a_rule_is_a_part() -> None:
    rules = default_rules()
    assert rules.matches(("Conv", "BatchNormalization", "Sum", "Relu")) == "whole"
    assert rules.matches(("Sum", "Relu")) == "part"
    assert rules.matches(("Relu", "Conv")) is None


def test_a_name_that_is_not_listed_is_an_op_type(tmp_path: Path) -> None:
    rules = load_rules(write(tmp_path, "rules: [[MyOp, act]]\nkinds: {act: [Relu, Tanh]}\n"))
    assert rules.matches(("MyOp", "Tanh")) == "whole"
    assert rules.matches(("Conv", "BatchNormalization")) is None


def test_a_file_may_extend_the_default_rules(tmp_path: Path) -> None:
    path = write(tmp_path, "extends: default\nrules: [[conv, Mish]]\nkinds: {conv: [MyConv]}\n")
    rules = load_rules(path)
    assert rules.matches(("MyConv", "Mish")) == "whole"
    assert rules.matches(("Conv", "Mish")) == "whole"
    assert rules.matches(("Conv", "BatchNormalization")) == "whole"
