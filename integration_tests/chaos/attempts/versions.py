"""A source whose records are versions of a few rows, which it also deletes: what deduplicated tables are made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from integration_tests.chaos.attempts.source import Source
from integration_tests.harness.warehouse import INTEGER, STRING

KEY = ("item", "shop")
CURSOR = "version"
DELETED_AT = "_ab_cdc_deleted_at"

_ITEMS = 9
_SHOPS = ("north", "south", None)


@dataclass(frozen=True)
class VersionedSource(Source):
    """Its records are the same whenever they are sent, but for the attempt: a later position never has a lower cursor,
    and two neighbours often have the same.
    """

    def schema(self, attempt: int) -> dict[str, object]:
        """Return the JSON schema that the catalog of an attempt has."""
        properties = super().schema(attempt)["properties"]
        assert isinstance(properties, dict)
        own = {"item": INTEGER, "shop": STRING, CURSOR: INTEGER, DELETED_AT: STRING}
        return {"type": "object", "properties": properties | own}

    def _more_values(self, position: int) -> Mapping[str, object]:
        random = Random(f"{self.seed}/version/{position}")
        deleted_at = "2024-02-29T00:00:00Z" if random.random() < 0.15 else None
        return {
            "item": random.randrange(_ITEMS),
            "shop": random.choice(_SHOPS),
            CURSOR: position // 2,
            DELETED_AT: deleted_at,
        }
