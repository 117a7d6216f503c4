"""The regions of AWS, as far as this version of its SDK knows them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

_DIRECTIONS = frozenset(
    ("central", "east", "north", "northeast", "northwest", "south", "southeast", "southwest", "west")
)
"""What stands before the number of every region: a direction."""


def is_misspelt(region: str) -> bool:
    """Return whether a code of a region's form is none, not even one that is newer than the SDK."""
    return region.split("-")[-2] not in _DIRECTIONS


def known_regions() -> Sequence[str]:
    """Return the regions of all partitions."""
    from botocore.loaders import create_loader

    partitions = create_loader().load_data("partitions")["partitions"]
    return sorted(region for partition in partitions for region in partition["regions"] if "global" not in region)


def nearest_region(region: str) -> str:
    """Return the known region whose code is most like this one, letters in a wrong order included."""

    def similarity(known: str) -> float:
        in_order = SequenceMatcher(None, region, known).ratio()
        return in_order + SequenceMatcher(None, sorted(region), sorted(known)).ratio()

    return max(known_regions(), key=similarity)
