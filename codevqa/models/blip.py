"""BLIP through transformers: the matcher and the captioner of the base and large presets.

Importing this module imports PyTorch; the registry does so only when a BLIP model is asked for.
"""

from .blip_captioner import BlipCaptioner
from .blip_common import DEFAULT_CACHE_BYTES, BlipStats
from .blip_matcher import BlipMatcher

__all__ = ["DEFAULT_CACHE_BYTES", "BlipCaptioner", "BlipMatcher", "BlipStats"]
