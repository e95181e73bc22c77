"""Jobs of Iceberg tables."""

from __future__ import annotations

from inver.pipeline.iceberg.cleaning import expire, orphans, statistics
from inver.pipeline.iceberg.rewriting import compact, manifests, purge

__all__ = ["compact", "expire", "manifests", "orphans", "purge", "statistics"]
