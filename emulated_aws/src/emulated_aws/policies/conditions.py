"""The element Condition of policies.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_elements_condition_operators.html
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulated_aws.policies.patterns import arn_matches, wildcard

Context = Mapping[str, Sequence[str]]
"""The values of a request's condition keys, by the name of the key in lower case."""


@dataclass(frozen=True, slots=True)
class Condition:
    """An operator on one condition key. `set_operator` is ForAllValues, ForAnyValue or empty."""

    operator: str
    negated: bool
    set_operator: str
    if_exists: bool
    key: str
    expected: tuple[str, ...]

    def is_met(self, context: Context) -> bool:
        """Return whether a request meets the condition.

        The request's value must match one of the expected values or, for a negated operator, none of them. If the
        request lacks the key, it only meets conditions with a negated operator, `…IfExists` or ForAllValues.
        """
        actual = context.get(self.key, ())
        if self.operator == "Null":
            return any((value.lower() == "true") == (not actual) for value in self.expected)
        if not actual:
            return self.set_operator == "ForAllValues" or (
                self.set_operator != "ForAnyValue" and (self.if_exists or self.negated)
            )
        matches = [self._expects(value) != self.negated for value in actual]
        return any(matches) if self.set_operator == "ForAnyValue" else all(matches)

    def _expects(self, value: str) -> bool:
        return any(_OPERATORS[self.operator](expected, value) for expected in self.expected)


def all_met(conditions: Iterable[Condition], context: Context) -> bool:
    """Return whether a request meets every condition of a statement."""
    return all(condition.is_met(context) for condition in conditions)


def conditions(element: Mapping[str, Mapping[str, Any]]) -> tuple[Condition, ...]:
    """Parse the element Condition. Raises ValueError for policy variables, and for operators that are not supported."""
    return tuple(_condition(name, key, expected) for name, keys in element.items() for key, expected in keys.items())


def _condition(name: str, key: str, expected: Any) -> Condition:
    set_operator, _, operator_name = name.rpartition(":")
    operator = operator_name.removesuffix("IfExists")
    positive = operator if operator in _OPERATORS else operator.replace("Not", "", 1)
    if set_operator not in ("", "ForAllValues", "ForAnyValue") or positive not in _OPERATORS:
        raise ValueError(f"condition operator {name} is not understood here")
    values = tuple(_text(value) for value in (expected if isinstance(expected, list) else [expected]))
    if any("${" in value for value in values):
        raise ValueError(f"policy variables are not understood here: {values}")
    return Condition(positive, positive != operator, set_operator, operator_name != operator, key.lower(), values)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _like(pattern: str, value: str) -> bool:
    return wildcard(pattern).fullmatch(value) is not None


_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": lambda expected, value: expected == value,
    "StringEqualsIgnoreCase": lambda expected, value: expected.lower() == value.lower(),
    "StringLike": _like,
    "Bool": lambda expected, value: expected.lower() == value.lower(),
    "ArnEquals": arn_matches,
    "ArnLike": arn_matches,
    "NumericEquals": lambda expected, value: float(value) == float(expected),
    "NumericLessThan": lambda expected, value: float(value) < float(expected),
    "NumericLessThanEquals": lambda expected, value: float(value) <= float(expected),
    "NumericGreaterThan": lambda expected, value: float(value) > float(expected),
    "NumericGreaterThanEquals": lambda expected, value: float(value) >= float(expected),
    "Null": lambda _expected, _value: False,
}
