"""Layers of a training step, each met twice: what work they leave behind beside their chain."""
