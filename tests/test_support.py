"""A skipped test says where its inputs can be had."""

from __future__ import annotations

from draws.tiny import needs_dnn_partitioning, needs_moirai


def test_published_inputs_are_named_with_their_repository() -> None:
    for marker, source in (
        (needs_dnn_partitioning, "github.com/msr-fiddle/dnn-partitioning"),
        (needs_moirai, "sample-data in github.com/moirai-placement/moirai"),
    ):
        assert source in marker.kwargs["reason"]
