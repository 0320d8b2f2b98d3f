"""What a number means: plans, schedules, and the referee that judges them."""
