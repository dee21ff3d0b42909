"""BLIP: the matcher and the captioner of every preset.

Importing this module imports PyTorch; the registry does so only when a BLIP model is asked for.
"""

from .captioner import BlipCaptioner
from .matcher import BlipMatcher
from .vision_tower import DEFAULT_CACHE_BYTES, BlipStats

__all__ = ["DEFAULT_CACHE_BYTES", "BlipCaptioner", "BlipMatcher", "BlipStats"]
