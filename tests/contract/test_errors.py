"""Exceptions of the tree: each is documented, typed and can be pickled."""

from __future__ import annotations

import pickle

import pytest

from kafkalog import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]


def test_errors_module_lists_every_class() -> None:
    """`__all__` names each exception that the module defines, sorted."""
    defined = sorted(
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    )
    assert defined == errors.__all__


@pytest.mark.parametrize("error_type", CLASSES)
def test_error_pickled_keeps_class_message_and_attributes(
    error_type: type[errors.KafkaLogError],
) -> None:
    """Executors send exceptions to their driver; nothing may be lost."""
    error = error_type("what happened", path="a/b-0", position=17, base_offset=1000)
    error.extra = 5  # type: ignore[attr-defined]
    copy = pickle.loads(pickle.dumps(error))
    assert type(error) is type(copy)
    assert str(error) == str(copy)
    assert vars(error) == vars(copy)


@pytest.mark.parametrize("error_type", CLASSES)
def test_error_without_arguments_can_be_made(error_type: type[errors.KafkaLogError]) -> None:
    """No argument is required, which unpickling needs."""
    error = error_type()
    assert (None, None, None) == (error.path, error.position, error.base_offset)
    assert isinstance(error, errors.KafkaLogError)


@pytest.mark.parametrize("error_type", CLASSES)
def test_error_class_is_in_the_tree_of_the_module_docstring(
    error_type: type[errors.KafkaLogError],
) -> None:
    """The module docstring is complete, and each class has a sentence."""
    assert errors.__doc__ is not None
    assert error_type.__name__ in errors.__doc__
    assert error_type.__doc__
    assert error_type.__doc__ != error_type.__mro__[1].__doc__


@pytest.mark.parametrize("error_type", CLASSES)
def test_error_bases_outside_the_tree_are_value_and_lookup_error_only(
    error_type: type[errors.KafkaLogError],
) -> None:
    """IndexError would silently end old iteration, and broad handlers would catch an OSError."""
    builtin = {base for base in error_type.__mro__ if base.__module__ == "builtins"}
    assert builtin <= {ValueError, LookupError, Exception, BaseException, object}
