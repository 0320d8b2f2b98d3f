"""The devices that torch can measure on."""

from typing import Literal

DeviceType = Literal["cpu", "cuda"]
