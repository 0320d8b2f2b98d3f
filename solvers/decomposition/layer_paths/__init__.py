"""Plans of a training step by the labels of its nested layers."""
