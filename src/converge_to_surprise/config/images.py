"""How a user's own pictures are read."""

from __future__ import annotations

from typing import Literal

Color = Literal["auto", "gray", "rgb"]
LabelSource = Literal["none", "from-folders"]
LARGEST_SIDE = 1024
