"""How the commands read a model: a spinner meanwhile, and a line on what its file leaves open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placegap.experiments.show.rendering import spinner, warn

if TYPE_CHECKING:
    from placegap.experiments.running.sources import Source
    from placegap.instances.problem.instance import Graph, Instance


def read_instance(source: Source) -> Instance:
    """The instance of a source.

    Raises
    ------
    InputError
        If it cannot be read, or has no devices.
    """
    from placegap.experiments.running.sources import idle_devices, load_source

    with spinner(f"reading {source.model}"):
        instance = load_source(source)
    warn_open(instance.graph, source.model)
    idle = idle_devices(instance)
    if idle is not None:
        warn(idle)
    if source.times is not None:
        warn_measured(instance.graph)
    return instance


def warn_measured(graph: Graph) -> None:
    """Print on stderr how many ops have measured times, and which names match none."""
    from placegap.experiments.running.sources import measured_times

    sentence = measured_times(graph)
    if sentence is not None:
        warn(sentence)


def warn_open(graph: Graph, model: str) -> None:
    """Print the lines of `open_questions` on stderr."""
    from placegap.experiments.running.sources import open_questions

    for sentence in open_questions(graph, model):
        warn(sentence)
