"""pydantic: locations of errors, and its own regular expressions."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, StringConstraints, ValidationError
from pydantic_core import SchemaError

pytestmark = pytest.mark.slow


class Circle(BaseModel):
    kind: Literal["circle"]
    radius: int


class Square(BaseModel):
    kind: Literal["square"]
    side: int


class Drawing(BaseModel):
    shape: Annotated[Circle | Square, Field(discriminator="kind")]


def test_the_tag_of_a_union_is_in_the_location_of_an_error() -> None:
    with pytest.raises(ValidationError) as caught:
        Drawing.model_validate({"shape": {"kind": "circle", "radius": "wide"}})

    assert caught.value.errors()[0]["loc"] == ("shape", "circle", "radius")


def test_its_own_regular_expressions_have_no_look_ahead() -> None:
    with pytest.raises(SchemaError, match="look-around"):

        class Named(BaseModel):
            name: Annotated[str, StringConstraints(pattern="^(?!aws).*$")]
