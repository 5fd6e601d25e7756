"""Options as objects: every option is written once, with its type, default, bounds and description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from pairsift.errors import InputError, dashed, similar

KINDS = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "text"}
PHRASES = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}


class OptionError(InputError):
    """An option is unknown, or its value cannot be used.

    Attributes:
        path: Names that lead to the option, from the outermost object inwards.
        complaint: What is wrong, without the option's name.
    """

    def __init__(self, path: tuple[str, ...], complaint: str) -> None:
        super().__init__(f"{'.'.join(path)} {complaint}")
        self.path = path
        self.complaint = complaint

    def with_parents(self, names: tuple[str, ...]) -> OptionError:
        """Return the error with the option as it is typed on the command line, below these names."""
        error = OptionError((*names, *self.path), self.complaint)
        error.args = (f"{dashed(*error.path)} {self.complaint}",)
        return error


if TYPE_CHECKING:
    _Base = BaseModel
else:

    class _OneLine(type(BaseModel)):
        """Report a refused value in one line, wherever the object is made."""

        def __call__(cls, *args: Any, **values: Any) -> Any:
            try:
                return super().__call__(*args, **values)
            except ValidationError as error:
                raise option_error(cls, error) from None

    class _Base(BaseModel, metaclass=_OneLine):
        pass


class Options(_Base):
    """A group of options. It cannot be changed, takes keywords alone, and refuses names that it does not have.

    A field is an option; a field of a type of `Options` is a group within the group. The values that were given are
    remembered, so that `filled` can put a preset's values in the place of the others.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)

    def __eq__(self, other: object) -> bool:
        """Compare the options; what an object has beside them does not count."""
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self).model_fields)

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in type(self).model_fields)))

    def filled(self, defaults: Mapping[str, Any]) -> Self:
        """Return a copy with other defaults wherever no value was given.

        Args:
            defaults: Values by field name; a mapping for a group.

        Raises:
            OptionError: One of the defaults cannot be used.
        """
        values = dict(defaults)
        for name in self.model_fields_set:
            value, default = getattr(self, name), defaults.get(name)
            is_group = isinstance(value, Options) and isinstance(default, Mapping)
            values[name] = value.filled(default) if is_group else value
        return type(self)(**values)

    def replaced(self, **values: Any) -> Self:
        """Return a copy with other values of some fields, checked as in the constructor."""
        return type(self)(**{name: getattr(self, name) for name in self.model_fields_set} | values)


def groups(kind: type[Options]) -> dict[str, type[Options]]:
    """Return the fields that are groups of options, with their types."""
    return {name: field.annotation for name, field in kind.model_fields.items() if _is_group(field.annotation)}  # type: ignore[misc]


def accepts(field: FieldInfo) -> str:
    """Return the values of a field in words, such as `a number from 0 to 1` or `choose from mean, sum`."""
    annotation: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    words = in_words(TypeAdapter(annotation).json_schema())
    return f"{words}, or a mapping of its options" if _is_group(field.annotation) else words


def in_words(schema: Mapping[str, Any]) -> str:
    """Return the values that a JSON schema allows in words, with their bounds; null is left out."""
    if "$ref" in schema or schema.get("type") == "object":
        return f"a {schema.get('$ref', schema.get('title', 'mapping')).rpartition('/')[2]}"
    if parts := [in_words(part) for part in schema.get("anyOf", ()) if part.get("type") != "null"]:
        return " or ".join(sorted(parts, key=lambda part: not part.startswith("choose")))
    if choices := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return "choose from " + ", ".join(map(str, choices))
    kind = str(schema.get("format", schema.get("type", "any")))
    word = f"list of {in_words(schema['items'])}" if kind == "array" else KINDS.get(kind, kind)
    if {"minimum", "maximum"} <= schema.keys():
        return f"{word} from {schema['minimum']} to {schema['maximum']}"
    phrases = [f"{phrase} {schema[bound]}" for bound, phrase in PHRASES.items() if bound in schema]
    phrases += [f"at most {schema['maxLength']} characters"] if "maxLength" in schema else []
    return ", ".join([word, *([" and ".join(phrases)] if phrases else [])])


def option_error(kind: type[BaseModel], error: ValidationError) -> OptionError:
    """Return the first thing that pydantic found wrong as one line."""
    details = error.errors(include_url=False)[0]
    path, owner, field = _walk(kind, details["loc"])
    if isinstance(cause := details.get("ctx", {}).get("error"), OptionError):
        return OptionError((*path, *cause.path), cause.complaint)
    if details["type"] == "extra_forbidden":
        return OptionError(path, f"is no option: {similar(path[-1], owner.model_fields)}")
    if details["type"] == "missing":
        return OptionError(path, "is missing")
    if field is None or details["type"] in ("value_error", "assertion_error"):
        return OptionError(path, f"is {details['input']!r}; {details['msg'].removeprefix('Value error, ')}")
    rule = accepts(field)
    return OptionError(
        path, f"is {details['input']!r}; " + (rule if rule.startswith("choose") else f"it must be {rule}")
    )


def _walk(
    kind: type[BaseModel], place: tuple[int | str, ...]
) -> tuple[tuple[str, ...], type[BaseModel], FieldInfo | None]:
    """Follow pydantic's location as far as it names fields. The rest names alternatives of a type."""
    path: list[str] = []
    field = None
    for part in place:
        if field is not None:
            if not _is_group(field.annotation):
                break
            kind = field.annotation  # type: ignore[assignment]
        path.append(str(part))
        field = kind.model_fields.get(str(part))
        if field is None:
            break
    return tuple(path), kind, field


def _is_group(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Options)


def alternatives(annotation: object) -> tuple[object, ...]:
    """Return the parts of a union without None; a type that is no union is its only part."""
    return tuple(_bare(part) for part in _parts(annotation))


def _parts(annotation: object) -> tuple[object, ...]:
    union = get_origin(annotation) is Union or type(annotation).__name__ == "UnionType"
    parts = get_args(annotation) if union else (annotation,)
    return tuple(part for part in parts if part is not type(None))


def _bare(part: object) -> object:
    return get_args(part)[0] if get_origin(part) is Annotated else part
