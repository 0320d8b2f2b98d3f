"""What only we run: the papers' pages, studies of our own, benchmarks, learned placers, stand-ins.

A checkout has it, and the wheel does not.
"""
