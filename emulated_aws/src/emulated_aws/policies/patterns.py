"""The wildcards in policies."""

import re
from functools import lru_cache


def action_matches(pattern: str, action: str) -> bool:
    """Return whether a pattern matches an action, in any letter case.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_action.html
    """
    return wildcard(pattern.lower()).fullmatch(action.lower()) is not None


def resource_matches(pattern: str, resource: str) -> bool:
    """Return whether a pattern matches a resource. The pattern `*` matches all resources.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_resource.html
    """
    return pattern == "*" or arn_matches(pattern, resource)


def arn_matches(pattern: str, arn: str) -> bool:
    """Return whether a pattern matches an ARN. Wildcards do not match the first five colons."""
    patterns, segments = pattern.split(":", 5), arn.split(":", 5)
    return len(patterns) == len(segments) and all(
        wildcard(part).fullmatch(segment) is not None for part, segment in zip(patterns, segments, strict=True)
    )


@lru_cache(maxsize=4096)
def wildcard(pattern: str) -> re.Pattern[str]:
    """Compile a pattern in which `*` matches any string, and `?` matches any character."""
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(character) or re.escape(character) for character in pattern), re.DOTALL)
