"""What the problem is: ops, edges, devices, links, semantics, and their arrays."""
