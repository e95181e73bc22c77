"""Jobs of Lance tables."""

from __future__ import annotations

from inver.pipeline.lance.cleaning import expire, index
from inver.pipeline.lance.compacting import compact

__all__ = ["compact", "expire", "index"]
