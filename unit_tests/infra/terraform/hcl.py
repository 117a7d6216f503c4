"""Terraform's expressions, as far as the module uses them: read once, evaluated as often as they are asked for.

`hcl2` reads files and blocks, and leaves expressions as text. The language: developer.hashicorp.com/terraform/language/
expressions. Only the branch of a conditional that is taken is evaluated, as Terraform does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

Scope = Callable[[str], Any]
"""Returns what a name at the beginning of a reference stands for, such as `var`; raises KeyError for unknown ones."""
Expression = Callable[[Scope], Any]
T = TypeVar("T")

_TOKEN = re.compile(r"\s*(?:(?P<number>\d+)|(?P<name>[A-Za-z_][\w-]*)|(?P<sign>&&|\|\||[=!<>]=|[<>!?:=.,(){}\[\]\"]))")


class HclError(ValueError):
    """An expression that Terraform would refuse, or that this module does not know."""


@cache
def expression(text: str) -> Expression:
    """Read an expression. Raises HclError."""
    reader = _Reader(text)
    found = reader.conditional()
    if reader.peek():
        raise HclError(f"not an expression: {text}")
    return found


def value(parsed: Any, scope: Scope) -> Any:
    """Return the value of an attribute as `hcl2` returns it: quoted templates, `${…}`, lists, maps, numbers."""
    match parsed:
        case str() if parsed.startswith("${") and parsed.endswith("}"):
            return expression(parsed[2:-1])(scope)
        case str():
            return expression(parsed)(scope)
        case list():
            return [value(each, scope) for each in parsed]
        case dict():
            return {
                str(value(key, scope)) if key[0] == '"' else key: value(each, scope) for key, each in parsed.items()
            }
    return parsed


def _key(key: str, scope: Scope) -> str:
    return str(value(key, scope)) if key.startswith('"') else key


def _can(argument: Expression, scope: Scope) -> bool:
    try:
        argument(scope)
    except HclError:
        return False
    return True


def _regex(pattern: str, text: str) -> str:
    # Terraform's syntax is RE2's: no look-around. `$` is the end of the text there, not a newline before it.
    if "(?" in pattern:
        raise HclError(f"Terraform cannot read {pattern}")
    found = re.search(re.sub(r"\$$", r"\\Z", pattern), text)
    if not found:
        raise HclError(f"{text} does not match")
    return found[0]


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "concat": lambda *lists: [each for part in lists for each in part],
    "contains": lambda values, each: each in values,
    "join": lambda separator, texts: separator.join(texts),
    "jsonencode": json.dumps,
    "length": len,
    "merge": lambda *maps: {key: each for part in maps for key, each in part.items()},
    "regex": _regex,
    "split": lambda separator, text: text.split(separator),
    "startswith": lambda text, start: text.startswith(start),
    "strcontains": lambda text, part: part in text,
}
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    ">=": lambda left, right: left >= right,
    "<=": lambda left, right: left <= right,
}
_CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "null": None}


class _Reader:
    """Recursive descent: a method for each level of precedence, the loosest first."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def conditional(self) -> Expression:
        condition = self._either()
        if not self._take("?"):
            return condition
        yes = self.conditional()
        self._expect(":")
        no = self.conditional()
        return lambda scope: yes(scope) if condition(scope) else no(scope)

    def peek(self) -> str:
        found = _TOKEN.match(self._text, self._at)
        return found[0].strip() if found else self._text[self._at :].strip()

    def _either(self) -> Expression:
        left = self._both()
        while self._take("||"):
            left = _or(left, self._both())
        return left

    def _both(self) -> Expression:
        left = self._comparison()
        while self._take("&&"):
            left = _and(left, self._comparison())
        return left

    def _comparison(self) -> Expression:
        left = self._unary()
        for sign, compare in _COMPARISONS.items():
            if self._take(sign):
                right = self._unary()
                return lambda scope: compare(left(scope), right(scope))
        return left

    def _unary(self) -> Expression:
        if self._take("!"):
            negated = self._unary()
            return lambda scope: not negated(scope)
        return self._postfix(self._primary())

    def _postfix(self, found: Expression) -> Expression:
        while True:
            if self._take("."):
                found = _item(found, _constant(self._name()))
            elif self._take("["):
                key = self.conditional()
                self._expect("]")
                found = _item(found, key)
            else:
                return found

    def _primary(self) -> Expression:
        if self._take('"'):
            return self._template()
        if self._take("("):
            inner = self.conditional()
            self._expect(")")
            return inner
        if self._take("["):
            items = self._until("]", self.conditional)
            return lambda scope: [item(scope) for item in items]
        if self._take("{"):
            pairs = self._until("}", self._pair)
            return lambda scope: {key(scope): each(scope) for key, each in pairs}
        token = self.peek()
        if token.isdigit():
            self._expect(token)
            return _constant(int(token))
        name = self._name()
        if self._take("("):
            return _call(name, self._until(")", self.conditional))
        return _constant(_CONSTANTS[name]) if name in _CONSTANTS else (lambda scope: scope(name))

    def _pair(self) -> tuple[Expression, Expression]:
        key = self._template() if self._take('"') else _constant(self._name())
        self._expect("=")
        return key, self.conditional()

    def _until(self, end: str, read: Callable[[], T]) -> list[T]:
        found = []
        while not self._take(end):
            found.append(read())
            if not self._take(","):
                self._expect(end)
                break
        return found

    def _template(self) -> Expression:
        """Read what follows a quotation mark, up to the next one that is not within an interpolation."""
        parts: list[Expression] = []
        while (sign := self._text[self._at]) != '"':
            if self._text.startswith("$${", self._at):
                self._at += 3
                parts.append(_constant("${"))
            elif self._text.startswith("${", self._at):
                self._at += 2
                parts.append(self.conditional())
                self._expect("}")
            elif sign == "\\":
                parts.append(_constant(json.loads(f'"{self._text[self._at : self._at + 2]}"')))
                self._at += 2
            else:
                self._at += 1
                parts.append(_constant(sign))
        self._at += 1
        return lambda scope: "".join(str(part(scope)) for part in parts)

    def _name(self) -> str:
        found = _TOKEN.match(self._text, self._at)
        if not found or not found["name"]:
            raise HclError(f"a name is expected at {self._text[self._at :]}")
        self._at = found.end()
        return found["name"]

    def _take(self, sign: str) -> bool:
        found = _TOKEN.match(self._text, self._at)
        if not found or found[0].strip() != sign:
            return False
        self._at = found.end()
        return True

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise HclError(f"{sign} is expected at {self._text[self._at :]}")


def _constant(constant: object) -> Expression:
    return lambda _: constant


def _compared(compare: Callable[[Any, Any], bool], left: Expression, right: Expression) -> Expression:
    return lambda scope: compare(left(scope), right(scope))


def _or(left: Expression, right: Expression) -> Expression:
    return lambda scope: left(scope) or right(scope)


def _and(left: Expression, right: Expression) -> Expression:
    return lambda scope: left(scope) and right(scope)


def _item(of: Expression, key: Expression) -> Expression:
    def item(scope: Scope) -> Any:
        found, name = of(scope), key(scope)
        try:
            return found[name]
        except (KeyError, IndexError, TypeError):
            raise HclError(f"nothing is at {name}") from None

    return item


def _call(name: str, arguments: list[Expression]) -> Expression:
    if name == "can":
        return lambda scope: _can(arguments[0], scope)
    if name not in _FUNCTIONS:
        raise HclError(f"the function {name} is not known here")
    return lambda scope: _FUNCTIONS[name](*(argument(scope) for argument in arguments))
