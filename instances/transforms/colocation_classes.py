"""What must share a device: colocation groups that join while ops are merged."""

from __future__ import annotations

from placegap.instances.problem.instance import Instance


class Together:
    """Classes of colocation groups, with the devices that run all of a class and its bytes.

    Examples
    --------
    >>> from placegap.instances import example
    >>> classes = Together(example())
    >>> classes.may_join(0, 1), classes.join(0, 1), classes.find(1)
    (True, None, 0)
    """

    def __init__(self, instance: Instance) -> None:
        arrays = instance.arrays
        runs = arrays.group_runs.tolist()
        # as bits of Python integers
        self.devices = [sum(1 << k for k, can in enumerate(row) if can) for row in runs]
        self.size: list[int] = arrays.group_bytes.tolist()
        self.home = list(range(arrays.num_groups))
        self.memory: list[int] = arrays.memory_bytes.tolist()

    def find(self, group: int) -> int:
        """The class of a group."""
        home = self.home
        while home[group] != group:
            home[group] = home[home[group]]
            group = home[group]
        return group

    def may_join(self, a: int, b: int) -> bool:
        """Whether one device can run and hold all that must be with the groups a and b."""
        one, two = self.find(a), self.find(b)
        if one == two:
            return True
        devices = self.devices[one] & self.devices[two]
        size = self.size[one] + self.size[two]
        return any(devices >> k & 1 and size <= limit for k, limit in enumerate(self.memory))

    def join(self, a: int, b: int) -> None:
        """Make one class of those of the groups a and b; it is numbered as a's."""
        one, two = self.find(a), self.find(b)
        if one != two:
            self.home[two] = one
            self.size[one] += self.size[two]
            self.devices[one] &= self.devices[two]
