"""Views of a graph that models and algorithms share; nothing here judges."""
