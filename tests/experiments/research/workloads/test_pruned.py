"""What a session runs of TensorFlow's graph when a training loop asks it for a step."""

import pytest

from placegap.experiments.research.workloads.catalogue import build_workload
from placegap.experiments.research.workloads.variants import pruned_to_step
from placegap.instances import Edge, Graph, Op


def names(*edges: str) -> set[str]:
    """What is left of a graph of edges ``a>b``."""
    ends = [edge.split(">") for edge in edges]
    ops = tuple(Op(name=name) for name in dict.fromkeys(name for end in ends for name in end))
    lines = tuple(Edge(producer=a, consumer=b, bytes=0) for a, b in ends)
    return {op.name for op in pruned_to_step(Graph(name="g", ops=ops, edges=lines)).ops}


def test_a_step_runs_what_its_update_and_its_loss_wait_for() -> None:
    kept = names("v>update", "g>update", "update>train_op", "x>total_loss", "v>save", "f>init")
    assert kept == {"v", "g", "update", "train_op", "x", "total_loss"}


def test_a_graph_that_is_no_training_step_keeps_all() -> None:
    assert names("a>b", "b>init") == {"a", "b", "init"}


@pytest.mark.parametrize("name", ["fd-dps:vgg-16", "celeritas:holography"])
def test_the_gradients_of_all_weights_are_left_and_no_initializer(name: str) -> None:
    whole = build_workload(name).graph
    step = pruned_to_step(whole)

    def count(graph: Graph, kind: str) -> int:
        return sum(op.kind.startswith(kind) for op in graph.ops)

    # an optimizer's update of each weight waits for its gradient
    assert count(step, "Apply") == count(whole, "Apply") > 0
    assert count(step, "Conv2DBackpropFilter") == count(whole, "Conv2DBackpropFilter")
    assert count(whole, "RestoreV2") > count(step, "RestoreV2") == 0
    assert count(whole, "HistogramSummary") > count(step, "HistogramSummary") == 0
    assert len(step.ops) < len(whole.ops)
