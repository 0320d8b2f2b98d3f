"""What only we run: the papers' pages, studies of our own, benchmarks, and learned placers.

A checkout has it, and the wheel does not.
"""
