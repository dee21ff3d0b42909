"""Two pictures to ask about, and what a record says of the model that is asked."""

from __future__ import annotations

from PIL import Image as PILImage

from codevqa.core.images import load_picture

RED, GREEN = (load_picture(PILImage.new("RGB", (60, 40), color)) for color in ("red", "green"))
ABOUT = {"name": "m", "model": "m", "settings": {}}
