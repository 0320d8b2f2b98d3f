"""Train the policy `blocks-4` of Placeto: on small graphs of one family, in turn.

``python -m placegap.experiments.research.learned.train_policy [UPDATES [FILE]]`` takes about
five minutes of one core for the usual number of updates, and gives the same file again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from placegap.experiments.research.learned.evaluations import Evaluations, seeded
from placegap.experiments.research.learned.placeto_nodes import nodes_of, start_of
from placegap.experiments.research.learned.table import (
    CLUSTER,
    POLICY,
    POLICY_NODES,
    TRAINING_SEEDS,
    family_graph,
)
from placegap.instances.problem import Makespan
from placegap.solvers.core.clock import Clock

UPDATES, WORKERS, ROUNDS, RATE, ENTROPY = 640, 8, 4, 0.003, 0.003


def main(arguments: Sequence[str] | None = None) -> int:
    """Train and write the policy; prints the mean time of every graph's episodes on the way."""
    from placegap.experiments.research.learned.placeto import (
        FOLDER,
        SUFFIX,
        Placeto,
        Tuning,
        new_policy,
        save_policy,
        train,
    )

    words = sys.argv[1:] if arguments is None else arguments
    updates = int(words[0]) if words else UPDATES
    path = Path(words[1]) if len(words) > 1 else FOLDER / (POLICY + SUFFIX)
    with seeded(0):
        policy = new_policy(4, ROUNDS)
        learners = []
        for seed in TRAINING_SEEDS:
            instance = family_graph(seed)
            nodes = nodes_of(instance, POLICY_NODES)
            tried = Evaluations(instance, Makespan(), budget=2**40)
            start = start_of(nodes, "one-device", seed)
            learners.append(Placeto(nodes, tried, policy, start))
        train(learners, Tuning(updates, WORKERS, RATE, ENTROPY), Clock(None))
    for seed, learner in zip(TRAINING_SEEDS, learners, strict=True):
        means = [point.mean_ns / learner.scale_ns for point in learner.tried.curve]
        print(f"seed {seed}: {means[0]:.3f} of one device at first, {means[-1]:.3f} at last")
    trained_on = (
        f"{len(learners)} graphs of the family blocks on {CLUSTER}, {updates} updates of {WORKERS}"
        f" episodes, at most {POLICY_NODES} nodes"
    )
    save_policy(policy, path, 4, trained_on)
    return 0


if __name__ == "__main__":
    sys.exit(main())
