"""Placeto and HRL: rewards, gradients, the shipped policy, and what they refuse."""

from pathlib import Path

import numpy as np
import pytest
from draws.tiny import tiny_instance

from placegap.experiments.research.learned.evaluations import Evaluations, seeded
from placegap.experiments.research.learned.placeto_nodes import nodes_of, start_of
from placegap.experiments.research.learned.table import (
    POLICY,
    POLICY_NODES,
    TRAINING_SEEDS,
    UNSEEN_SEEDS,
    family_graph,
)
from placegap.instances import Makespan, example
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.reading.errors import InputError
from placegap.solvers import run_method
from placegap.solvers.core.clock import Clock

torch = pytest.importorskip("torch", reason="needs the torch extra")
pytestmark = pytest.mark.torch


def learner(budget: int = 100):  # type: ignore[no-untyped-def]  # torch may be missing
    from placegap.experiments.research.learned.placeto import Placeto, new_policy

    nodes = nodes_of(example(), 4)
    tried = Evaluations(example(), Makespan(), budget)
    return Placeto(nodes, tried, new_policy(2, rounds=2), start_of(nodes, "one-device", 0))


def test_a_step_is_worth_its_cost_before_minus_the_least_cost_after() -> None:
    with seeded(0):
        player = learner()
        episodes = player.play(1, Clock(None))._replace(
            costs=np.array([[1.0], [0.5], [0.8], [0.9], [0.7]])
        )
        player.returns.append(np.zeros((4, 1)))  # an update before, in which nothing was gained
        found = player.advantage(episodes)
    # 1.0 - 0.5, 0.5 - 0.7, 0.8 - 0.7, 0.9 - 0.7; the baseline is half of each
    assert found[:, 0] == pytest.approx([0.25, -0.1, 0.05, 0.1])


def test_the_gradient_of_the_loss_is_that_of_reinforce() -> None:
    from placegap.experiments.research.learned.placeto import policy_loss

    with seeded(1):
        player = learner()
        episodes = player.play(2, Clock(None))
        advantage = np.array([[0.5, -1.0], [2.0, 0.0], [-0.25, 1.0], [0.0, 3.0]])
        policy_loss(player.policy, player.graph, episodes, advantage, 0.0).backward()
        with torch.no_grad():
            current = torch.from_numpy(np.repeat(episodes.current, 2))
            logits = player.policy(player.graph, episodes.states.flatten(0, 1), current)
    # d log softmax(z)[a] / dz = onehot(a) - softmax(z), and the last bias is added to all logits
    share = logits.softmax(-1).numpy()
    onehot = np.eye(2)[episodes.chosen.reshape(-1).numpy()]
    expected = -(advantage.reshape(-1, 1) * (onehot - share)).mean(axis=0)
    assert player.policy.head[-1].bias.grad.numpy() == pytest.approx(expected, abs=1e-6)


def test_the_shipped_policy_is_small_and_places_graphs_that_it_never_saw() -> None:
    from placegap.experiments.research.learned.placeto import FOLDER, SUFFIX

    assert (FOLDER / (POLICY + SUFFIX)).stat().st_size < 200_000
    assert not {*TRAINING_SEEDS} & {*UNSEEN_SEEDS}
    once: dict[str, object] = {"nodes": POLICY_NODES, "train": False}
    trained, untrained = [], []
    for seed in (0, 1, 2):
        graph = family_graph(seed)
        trained.append(
            run_method(graph, Makespan(), "placeto", {**once, "policy": POLICY}).value_ns
        )
        untrained.append(run_method(graph, Makespan(), "placeto", once).value_ns)
        alone = run_method(graph, Makespan(), "single-device").value_ns
        assert trained[-1] is not None
        assert alone is not None
        assert trained[-1] < alone
    assert sum(filter(None, trained)) < sum(filter(None, untrained))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "policy.json"),
        ('{"num_devices": 2, "rounds": 1, "weights": {"head": [NaN]}}', "finite"),
        ('{"num_devices": 4, "rounds": 1, "weights": {}}', "4 devices"),
        ('{"num_devices": 2, "rounds": 1, "weights": {"head": [1]}}', "train"),
    ],
)
def test_a_damaged_policy_is_refused_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "policy.json"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint) as caught:
        run_method(example(), Makespan(), "placeto", {"policy": str(path)})
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def hrl_learner(instance, budget: int = 100, groups: int = 3):  # type: ignore[no-untyped-def]
    from placegap.experiments.research.learned.hrl import Hrl, op_features

    tried = Evaluations(instance, Makespan(), budget)
    return Hrl(op_features(instance), tried, groups, width=8, rate=0.003)


def test_the_gradient_goes_to_both_policies() -> None:
    from placegap.experiments.research.learned.hrl import Draws, Sample, hierarchical_loss

    grouping = torch.tensor(-1.0, requires_grad=True)
    placements = torch.tensor([-2.0, -3.0, -4.0, -5.0], requires_grad=True)
    draws = Draws(Sample(torch.zeros(4), grouping), Sample(torch.zeros(4, 3), placements))
    hierarchical_loss(draws, torch.tensor([1.0, 2.0, -1.0, 2.0])).backward()
    # minus the mean advantage for the one grouping, minus a quarter of its own for each placement
    assert grouping.grad.item() == pytest.approx(-1.0)
    assert placements.grad.tolist() == pytest.approx([-0.25, -0.5, 0.25, -0.5])


def test_an_op_that_the_device_of_its_group_cannot_run_goes_where_it_can() -> None:
    for seed in range(10):
        instance = tiny_instance(seed, num_ops=8, num_devices=3)
        player = hrl_learner(instance)
        for k in range(3):
            units = len(player.ops.kind)
            device = player.device_of_ops(np.full(units, k))
            times = instance.arrays.time_ns[np.arange(8), device]
            assert (times != UNSUPPORTED).all()
            together = instance.arrays.group
            assert all(len({*device[together == g].tolist()}) == 1 for g in together.tolist())
