"""Which manifests a commit merges, so that their number does not grow with the number of commits.

Each commit adds a manifest. Manifests of about as many files are a level: each level's have `fan_in` times the files of
the one below. When a level is full its manifests become one, of a higher level. So a file's entry is written again once
per level, and n commits leave about `fan_in` times log n manifests. Iceberg's own library merges all small ones into
one, again and again, until that has 8 MB.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import TableProperties
from pyiceberg.utils.properties import property_as_bool, property_as_int

_FAN_IN = 20
_TARGET_BYTES = 1 << 20
_MOST_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """How a table's manifests are merged, by the properties that Iceberg's writers have for it.

    `fan_in` is at least two. No merged manifest is larger than `target_bytes`, so no commit rewrites more than that.
    """

    enabled: bool = True
    fan_in: int = _FAN_IN
    target_bytes: int = _TARGET_BYTES

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Self:
        """Return the policy of a table (Iceberg: table properties `commit.manifest.*`).

        Without them, manifests are merged sooner and kept smaller than by Iceberg's library, which makes no difference
        to readers. Values that are no numbers are ignored, as if they were not set.
        """
        present = dict(properties)
        return cls(
            property_as_bool(present, TableProperties.MANIFEST_MERGE_ENABLED, True),
            max(2, _number(present, TableProperties.MANIFEST_MIN_MERGE_COUNT, _FAN_IN)),
            _number(present, TableProperties.MANIFEST_TARGET_SIZE_BYTES, _TARGET_BYTES),
        )

    def choose(self, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
        """Return the manifests to make one of: of one partition spec and one level; none if no level is full.

        Of several full levels the lowest is chosen: a commit merges once, the next ones do the rest.
        """
        if not self.enabled:
            return []
        levels: dict[tuple[int, int], list[ManifestFile]] = defaultdict(list)
        for manifest in manifests:
            if (files := _files(manifest)) and manifest.manifest_length < self.target_bytes:
                levels[self._level(files), manifest.partition_spec_id].append(manifest)
        for _, level in sorted(levels.items()):
            if len(level) >= self.fan_in and len(fitting := self._fitting(level)) > 1:
                return fitting
        return []

    def _level(self, files: int) -> int:
        level = 0
        while files >= self.fan_in:
            files, level = files // self.fan_in, level + 1
        return level

    def _fitting(self, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
        """Return the oldest manifests that fit into one, at most a hundred: each is a request."""
        chosen, size = list[ManifestFile](), 0
        for manifest in sorted(manifests, key=lambda each: each.sequence_number)[: max(self.fan_in, _MOST_AT_ONCE)]:
            size += manifest.manifest_length
            if size > self.target_bytes:
                break
            chosen.append(manifest)
        return chosen


def _files(manifest: ManifestFile) -> int:
    """Return the number of live data files; 0 if it is unknown, as in manifests of old writers, or not for us to merge.

    Delete files stay in the manifests that their writer made.
    """
    counts = (manifest.added_files_count, manifest.existing_files_count)
    if manifest.content != ManifestContent.DATA or manifest.key_metadata is not None or None in counts:
        return 0
    return sum(count for count in counts if count is not None)


def _number(properties: dict[str, str], name: str, default: int) -> int:
    try:
        return property_as_int(properties, name, default) or default
    except ValueError:
        return default
