"""Tables that are printed from what studies recorded."""
