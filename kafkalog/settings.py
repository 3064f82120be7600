"""Definition of a setting: its Kafka key, its type, its range, and its documentation.

A class of settings is a dataclass whose fields are made with `setting(...)`. This call has all
facts of a setting; parsing, checking, printing and the generated documentation use them. Texts are
parsed as by Kafka's ConfigDef: blanks around a number or a word are ignored, a boolean is `true` or
`false` in any case, the elements of a list are separated by commas.

Thread-safety: all values are immutable. This module never reads files or the environment.
"""

from __future__ import annotations

import difflib
import functools
import math
import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

from kafkalog.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "INT_MAX",
    "LONG_MAX",
    "OWN_PREFIX",
    "ConfigChange",
    "Effect",
    "Kind",
    "Setting",
    "change_between",
    "check_config",
    "names_unknown_fields",
    "parse_properties",
    "replace_fields",
    "setting",
    "settings_of",
    "to_properties",
    "unknown_name",
]

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

# Prefix of the keys that Kafka does not have; field names omit it.
OWN_PREFIX: Final = "kafkalog."

_Config = TypeVar("_Config", bound="DataclassInstance")
_Kind = TypeVar("_Kind")

Kind = Literal["int", "long", "double", "boolean", "string", "list"]
# When a changed value takes effect: from the next call on, from the next segment on, or after
# closing and reopening.
Effect = Literal["at once", "next segment", "reopening"]

_BITS: Final[dict[str, int]] = {"int": 31, "long": 63}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DOUBLE: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
# More digits than any valid value; int() of a megabyte of digits would take seconds.
_DIGITS_MAX: Final = 100
# Characters that Java's `trim` removes; Python's `strip` would remove more.
_TRIMMED: Final = "".join(map(chr, range(0x21)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """
    One setting.

    Attributes:
        key: Kafka's name, with dots.
        name: field of the config.
        kind: type of Kafka's ConfigDef.
        default: value of a setting that is not set.
        lower, upper: inclusive bounds of a number, None for those of the type.
        extra: a number outside the bounds that is allowed, too.
        choices: allowed words of a string, or allowed elements of a list; empty if any text is
            allowed.
        effect: when a changed value takes effect.
        group: heading in the documentation.
        unit: unit of a number, "" for none.
        doc: effect of the setting, and when to leave it alone.
    """

    key: str
    name: str
    kind: Kind
    default: Any
    lower: float | None
    upper: float | None
    extra: int | None
    choices: tuple[str, ...]
    effect: Effect
    group: str
    unit: str
    doc: str

    @property
    def rule(self) -> str:
        """Rule for a value, as the end of the sentence "must be ..."."""
        if self.kind == "boolean":
            return "true or false"
        if self.kind == "string":
            return "one of " + ", ".join(self.choices) if self.choices else "a text"
        if self.kind == "list":
            return "a list with elements of " + (", ".join(self.choices) or "any text")
        noun = "a number" if self.kind == "double" else "an integer"
        lower, upper = self.lower, self.upper
        if self.kind in _BITS:
            upper = 2 ** _BITS[self.kind] - 1 if upper is None else upper
            lower = -(2 ** _BITS[self.kind]) if lower is None else lower
        rule = f"{noun} from {_number(lower)} to {_number(upper)}"
        return rule if self.extra is None else f"{rule}, or {self.extra}"

    def refusal(self, value: object) -> ConfigError:
        """Return the error for an invalid `value`."""
        shown = repr(value)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        return ConfigError(f"{self.key} = {shown}: must be {self.rule}")

    def parse(self, text: str) -> Any:
        """Return the value of the text in a properties file, without a check of its range."""
        if not isinstance(text, str):
            raise self.refusal(text)
        stripped = text.strip(_TRIMMED)
        if self.kind == "boolean":
            lowered = stripped.lower()
            if lowered not in {"true", "false"}:
                raise self.refusal(text)
            return lowered == "true"
        if self.kind == "string":
            return stripped
        if self.kind == "list":
            parts = tuple(part.strip(_TRIMMED) for part in stripped.split(","))
            # A broker ignores empty elements in a list of directories.
            return parts if self.choices and stripped else tuple(filter(None, parts))
        pattern = _DOUBLE if self.kind == "double" else _INTEGER
        if len(stripped) > _DIGITS_MAX or not pattern.fullmatch(stripped):
            raise self.refusal(text)
        return float(stripped) if self.kind == "double" else int(stripped)

    def format(self, value: Any) -> str:
        """Return the text that `parse` turns into `value`."""
        if self.kind == "boolean":
            return "true" if value else "false"
        if self.kind == "list":
            return ",".join(value)
        return str(value)

    def check(self, value: Any) -> Any:
        """Return `value` in the type the setting has; raise ConfigError if it is not allowed."""
        if self.kind == "boolean":
            if not isinstance(value, bool):
                raise self.refusal(value)
            return value
        if self.kind == "string":
            if not isinstance(value, str) or (self.choices and value not in self.choices):
                raise self.refusal(value)
            return value
        if self.kind == "list":
            return self._check_list(value)
        return self._check_number(value)

    def _check_list(self, value: Any) -> tuple[str, ...]:
        # A single word, or words as in a properties file; never the letters of it.
        if isinstance(value, str) and self.choices:
            value = self.parse(value)
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise self.refusal(value)
        elements = sorted(value) if isinstance(value, set | frozenset) else list(value)
        for element in elements:
            is_valid = element in self.choices if self.choices else isinstance(element, str)
            if not is_valid or not element:
                raise self.refusal(value)
        return tuple(dict.fromkeys(elements))

    def _check_number(self, value: Any) -> int | float:
        number: int | float
        if isinstance(value, bool):
            raise self.refusal(value)
        try:
            number = operator.index(value)
        except TypeError:
            if self.kind != "double" or not isinstance(value, float) or math.isnan(value):
                raise self.refusal(value) from None
            number = value
        if number == self.extra:
            return number
        bits = _BITS.get(self.kind)
        if bits is not None and not -(2**bits) <= number < 2**bits:
            raise self.refusal(value)
        if self.lower is not None and number < self.lower:
            raise self.refusal(value)
        if self.upper is not None and number > self.upper:
            raise self.refusal(value)
        return float(number) if self.kind == "double" else number


# Of each class that was asked for: a config is made for every log that is opened.
_SETTINGS: Final[dict[type[Any], Mapping[str, Setting]]] = {}


def setting(
    key: str,
    kind: Kind,
    default: object,
    doc: str,
    *,
    group: str,
    lower: float | None = None,
    upper: float | None = None,
    extra: int | None = None,
    choices: tuple[str, ...] = (),
    unit: str = "",
    effect: Effect = "at once",
    prefix: str = OWN_PREFIX,
) -> Any:
    """
    Return a dataclass field for the setting `key`; see `Setting` for the arguments.

    The field is named as the key, without `prefix` and with underscores.
    """
    described = Setting(
        key=key,
        name=key.removeprefix(prefix).replace(".", "_"),
        kind=kind,
        default=default,
        lower=lower,
        upper=upper,
        extra=extra,
        choices=choices,
        effect=effect,
        group=group,
        unit=unit,
        doc=doc,
    )
    return field(default=default, metadata={"setting": described})


def names_unknown_fields(cls: type[_Kind]) -> type[_Kind]:
    """
    Make a dataclass of settings name the nearest field where it is made with an unknown one.

    The decorated class raises ConfigError for an unknown field, and for a mapping in place of
    fields, where Python itself raises a TypeError without the nearest name.
    """
    generated = cls.__init__

    @functools.wraps(generated)
    def __init__(self: Any, *arguments: Any, **values: Any) -> None:  # noqa: N807
        try:
            generated(self, *arguments, **values)
        except TypeError:
            own_fields = {each.name: each for each in fields(cast("Any", cls)) if each.init}
            if arguments:
                raise ConfigError(
                    f"{cls.__name__} must be made of fields by name; of Kafka's keys with"
                    f" {cls.__name__}.from_properties"
                ) from None
            for name in values:
                if name not in own_fields:
                    raise unknown_name("field", name, own_fields) from None
            raise

    cls.__init__ = __init__  # type: ignore[method-assign]
    return cls


def settings_of(cls: type[Any]) -> Mapping[str, Setting]:
    """Return field name -> Setting of a dataclass, in the order of its fields that are settings."""
    settings = _SETTINGS.get(cls)
    if settings is None:
        own = (each for each in fields(cls) if "setting" in each.metadata)
        settings = MappingProxyType({each.name: each.metadata["setting"] for each in own})
        _SETTINGS[cls] = settings
    return settings


def check_config(config: object) -> None:
    """Check every setting of a frozen dataclass under construction, and store it normalised."""
    for name, each in settings_of(type(config)).items():
        value = getattr(config, name)
        # Most have their default, which is as it should be.
        if value is not each.default:
            object.__setattr__(config, name, each.check(value))


def parse_properties(
    cls: type[Any],
    properties: Mapping[str, Any],
    without_use: Mapping[str, str],
    *,
    only_texts: bool = True,
) -> dict[str, Any]:
    """
    Return the keyword arguments for `cls` that dotted keys and texts stand for.

    Args:
        cls: a dataclass of settings.
        properties: dotted key to text.
        without_use: keys that Kafka has and `cls` has not, and why.
        only_texts: whether values must be texts; else others are passed on as they are.

    Raises:
        ConfigError: a key is unknown, or a text is not of the key's type.
    """
    by_key = {each.key: each for each in settings_of(cls).values()}
    arguments: dict[str, Any] = {}
    for key, text in properties.items():
        found = by_key.get(key)
        if found is None:
            if key in without_use:
                raise ConfigError(f"{key} has no meaning here: {without_use[key]}")
            raise unknown_name("setting", key, by_key)
        is_text = only_texts or isinstance(text, str)
        arguments[found.name] = found.parse(text) if is_text else text
    return arguments


def to_properties(config: object) -> dict[str, str]:
    """Return dotted key -> text of every setting of a config."""
    return {
        each.key: each.format(getattr(config, name))
        for name, each in settings_of(type(config)).items()
    }


def replace_fields(config: _Config, changes: Mapping[str, Any]) -> _Config:
    """
    Return a config with some fields changed.

    Raises:
        ConfigError: a field is unknown, or a value is wrong.
    """
    names = [each.name for each in fields(config)]
    for name in changes:
        if name not in names:
            raise unknown_name("field", name, names)
    return replace(config, **changes)


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """
    Differences between two configs, by the time when they take effect. False for no difference.

    Attributes:
        at_once: keys whose new value takes effect from the next call on.
        next_segment: keys whose new value takes effect for segments that begin from now on.
        reopening: keys whose new value takes effect when the log, or the manager, is reopened.
    """

    at_once: tuple[str, ...] = ()
    next_segment: tuple[str, ...] = ()
    reopening: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.at_once or self.next_segment or self.reopening)

    def __add__(self, other: ConfigChange) -> ConfigChange:
        return ConfigChange(
            self.at_once + other.at_once,
            self.next_segment + other.next_segment,
            self.reopening + other.reopening,
        )


def change_between(old: object, new: object) -> ConfigChange:
    """Return the differences between two configs of one class."""
    keys: dict[Effect, list[str]] = {"at once": [], "next segment": [], "reopening": []}
    for name, each in settings_of(type(old)).items():
        if getattr(old, name) != getattr(new, name):
            keys[each.effect].append(each.key)
    return ConfigChange(*(tuple(found) for found in keys.values()))


def unknown_name(what: str, name: object, names: Iterable[str]) -> ConfigError:
    """Return the error for an unknown name, with the nearest known one."""
    nearest = difflib.get_close_matches(str(name), sorted(names), n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return ConfigError(f"unknown {what} {name!r}{hint}")


def _number(value: float | None) -> str:
    """Return the text of a bound."""
    return "any" if value is None else str(value)
