"""Faults of a pipeline file in plain words: what was expected, what was found, and never a secret."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from kafka_ingest.adapters.yaml_document import Location

# Spark's own rule for what it hides (spark.redaction.regex, Spark 4.2) and the same in other spellings.
_SECRET = re.compile(r"(?i)secret|passw|passphrase|token|access[._-]?key|private[._-]?key")
_URL_OR_ACCOUNT = re.compile(r"://|\S@")
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: where it is, what was expected there, and what was found."""

    location: Location
    expected: str
    found: str

    @property
    def text(self) -> str:
        """The fault as one sentence, without its place."""
        return f"expected {self.expected}; found {self.found}"


def may_be_secret(text: str) -> bool:
    """Tells whether a text looks like a secret or the name of one."""
    return _SECRET.search(text) is not None


def key_text(location: Location) -> str:
    """Spells a location as a reader would: ``value.columns[2].type``; keys that hold a dot are quoted."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[\w-]+", part):
            text += f".{part}" if text else part
        else:
            text += f"['{part}']"
    return text


def describe(value: object) -> str:
    """Says what a value is, shortened, and without the text where it could be a secret."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the value {str(value).lower()}"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return _describe_text(value)
    return "a list" if isinstance(value, list) else "a mapping"


def _describe_text(text: str) -> str:
    if not text:
        return "an empty text"
    if may_be_secret(text) or _URL_OR_ACCOUNT.search(text):
        return f"a text of {len(text)} characters that may hold a secret, so it is not shown"
    return f"the text {text!r}" if len(text) <= _SHOWN_CHARACTERS else f"the text {text[:_SHOWN_CHARACTERS]!r}..."


def model_faults(error: ValidationError, model: type[BaseModel]) -> Iterator[Fault]:
    """Yields the faults of a validation, in pydantic's order, which is that of the model's fields."""
    for detail in error.errors(include_url=False):
        location = _location(detail)
        if detail["type"] == "extra_forbidden":
            yield _unknown_key(location, model)
        elif detail["type"] == "missing":
            yield Fault(location, "a value, for this key is required", "nothing")
        else:
            yield Fault(location, _expected(detail), describe(detail["input"]))


def _location(detail: ErrorDetails) -> Location:
    # "<word>" and "<section>" name a branch of a union of the model, "[key]" a mapping's key: they are not in the file.
    return tuple(part for part in detail["loc"] if part not in ("<word>", "<section>", "[key]"))


# What pydantic's fault types mean, in words; the types: https://docs.pydantic.dev/latest/errors/validation_errors/
_EXPECTED: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "string_type": lambda _: "a text",
    "int_type": lambda _: "a whole number",
    "int_from_float": lambda _: "a whole number",
    "float_type": lambda _: "a number",
    "finite_number": lambda _: "a finite number",
    "bool_type": lambda _: "true or false",
    "list_type": lambda _: "a list",
    "dict_type": lambda _: "a mapping of keys to values",
    "model_type": lambda _: "a mapping of keys to values",
    "invalid_key": lambda _: "a key that is text",
    "literal_error": lambda context: context["expected"].replace("'", ""),
    "greater_than": lambda context: f"a number greater than {context['gt']}",
    "greater_than_equal": lambda context: f"a number of at least {context['ge']}",
    "less_than_equal": lambda context: f"a number of at most {context['le']}",
    "too_short": lambda context: f"at least {context['min_length']} of them",
    "too_long": lambda context: f"at most {context['max_length']} of them",
    "string_too_short": lambda _: "a text that is not empty",
    "string_too_long": lambda context: f"a text of at most {context['max_length']} characters",
    "value_error": lambda context: str(context["error"]),
}


def _expected(detail: ErrorDetails) -> str:
    if detail["type"] == "string_type" and isinstance(detail["input"], int | float):
        return "a text (put it in quotes)"
    if detail["type"] == "int_type" and isinstance(detail["input"], str | float):
        return "a whole number, written with digits alone and without quotes"
    words = _EXPECTED.get(detail["type"])
    return words(detail.get("ctx", {})) if words else detail["msg"][:1].lower() + detail["msg"][1:]


def _unknown_key(location: Location, model: type[BaseModel]) -> Fault:
    known = list(_section(location[:-1], model).model_fields)
    key = str(location[-1])
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the keys here are {', '.join(known)}"
    return Fault(location, f"a known key ({hint})", f"the unknown key {key}")


def _section(location: Location, model: type[BaseModel]) -> type[BaseModel]:
    """Gives the model that describes the mapping at a location."""
    for part in location:
        if isinstance(part, str):
            model = next(models_in(model.model_fields[part].annotation))
    return model


def models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """Yields the models that an annotation names, however deep in lists and unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)
