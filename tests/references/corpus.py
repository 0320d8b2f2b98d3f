"""Graphs of the corpus, each read once: reading all takes longer than most tests of them."""

from functools import cache

from placegap.instances.corpus.corpus import load_corpus

graph_of = cache(load_corpus)
