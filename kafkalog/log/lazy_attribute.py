"""Attributes that are made when they are first read.

A log of many segments is opened to append to its last one and to read some: what the others need
for look-ups is not made before somebody looks something up in them.

Thread-safety: readers that come at the same time may each make a value, and all get one of them;
so making it must have no effect but the value.
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
        # One step that no other thread can come between: the first value stays.
        value: Value = instance.__dict__.setdefault(self._name, self._make(instance))
        return value

    def peek(self, instance: object) -> Value | None:
        """Return the value, or None where nobody has read it yet."""
        return instance.__dict__.get(self._name)
