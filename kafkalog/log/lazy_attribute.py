"""Attributes that are computed when they are first read.

A log of many segments is opened to append to its last segment and to read a few: the look-up
structures of a segment are made by the first look-up in it.

Thread-safety: concurrent first readers may each make a value, and all of them get the same one;
so `make` must have no other effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

__all__ = ["LazyAttribute"]

Value = TypeVar("Value")


class LazyAttribute(Generic[Value]):
    """
    An attribute of a class without slots; once made, reading it is reading any attribute.

    Args:
        make: takes the instance and returns the value.
    """

    def __init__(self, make: Callable[[Any], Value]) -> None:
        self._make = make
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> LazyAttribute[Value]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...
    def __get__(self, instance: object | None, owner: type) -> LazyAttribute[Value] | Value:
        if instance is None:
            return self
        # `setdefault` is atomic: the first value stays.
        value: Value = instance.__dict__.setdefault(self._name, self._make(instance))
        return value

    def peek(self, instance: object) -> Value | None:
        """Return the value, or None if it was not read yet."""
        return instance.__dict__.get(self._name)
