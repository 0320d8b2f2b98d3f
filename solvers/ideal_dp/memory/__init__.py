"""Memory in the ideal DP: idle ops that hold bytes, and what stages hold at their peak."""
