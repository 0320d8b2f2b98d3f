"""`ideal-dp`: the dynamic program over ideals; `method` chooses the engine."""
