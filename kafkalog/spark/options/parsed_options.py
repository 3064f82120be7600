"""Options as they were given: matched with the table, in any case.

Spark passes them in lower case. A name that the table does not have is an error with the nearest
name; a name without effect here causes a warning, once in a process.

Thread-safety: `ParsedOptions` is immutable.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.options.option import Option, Where, invalid
from kafkalog.spark.options.table import IGNORED, OPTIONS

__all__ = ["ParsedOptions"]

logger = logging.getLogger(__name__)

_BY_KEY: Final = {
    key.lower(): option for option in OPTIONS for key in (option.name, *option.aliases)
}
# Warnings that were logged already; a query parses its options in several places.
_REPORTED: Final[set[str]] = set()


class ParsedOptions:
    """
    The options of one query.

    Args:
        options: name to text.
        where: the kind of query.

    Attributes:
        ignored: the ignored options, in words.

    Raises:
        KafkaLogSparkError: OPTION_UNKNOWN, OPTION_INVALID, OPTION_CONFLICT.
    """

    def __init__(self, options: Mapping[str, str], where: Where) -> None:
        self._where = where
        self._values: dict[str, Any] = {}
        self._texts: dict[str, str] = {}
        ignored, unknown = [], []
        for key, text in options.items():
            option = _BY_KEY.get(key.lower())
            if option is not None and where in option.where:
                self._store(option, key, str(text))
                continue
            reason = self._reason_to_ignore(key, option)
            if reason is None:
                unknown.append((key, option))
            elif reason:
                ignored.append(f"{key}: {reason}")
        for key, option in unknown:
            if self.get("strictOptions"):
                raise self._unknown(key, option)
            ignored.append(f"{key}: unknown option")
        self.ignored = tuple(ignored)
        self._warn_ignored()

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> Any:
        """Return the value of an option, its default where it was not given."""
        if name in self._values:
            return self._values[name]
        option = _BY_KEY[name.lower()]
        return None if option.default is None else option.parse(option.default)

    def one_of(self, *names: str) -> str | None:
        """Return the given one of some options, None without one; OPTION_CONFLICT for several."""
        matches = [name for name in names if name in self]
        if len(matches) > 1:
            raise KafkaLogSparkError(
                ErrorCode.OPTION_CONFLICT,
                f"{' and '.join(matches)} exclude each other",
                options=matches,
            )
        return matches[0] if matches else None

    def paths(self) -> tuple[str, ...]:
        """
        Return the directories that `path` and `paths` name.

        Raises:
            KafkaLogSparkError: OPTION_MISSING, OPTION_CONFLICT, UNSUPPORTED.
        """
        name = self.one_of("path", "paths")
        if name is None:
            raise KafkaLogSparkError(
                ErrorCode.OPTION_MISSING,
                "path is missing: load(path), or option('path', path); a catalog table passes no"
                " options on, CREATE TEMPORARY VIEW v USING kafkalog OPTIONS (path '...') does",
                option="path",
            )
        value = self.get(name)
        return tuple(map(_local_path, [value] if name == "path" else value))

    def _store(self, option: Option, key: str, text: str) -> None:
        value = option.parse(text)
        if option.name in self._values and self._values[option.name] != value:
            raise KafkaLogSparkError(
                ErrorCode.OPTION_CONFLICT,
                f"{key} = {text!r} contradicts {option.name} = {self._texts[option.name]!r}",
                options=[key, option.name],
            )
        self._values[option.name] = value
        self._texts[option.name] = text

    def _reason_to_ignore(self, key: str, option: Option | None) -> str | None:
        """
        Return why an option is ignored, "" if that needs no warning, None if it is not ignored.
        """
        if option is not None and option.ignored_in == self._where:
            return "only a stream applies it"
        for each in IGNORED:
            if self._where in each.where and each.covers(key.lower()):
                return each.reason if each.is_reported else ""
        return None

    def _unknown(self, key: str, option: Option | None) -> KafkaLogSparkError:
        if option is not None:
            return KafkaLogSparkError(
                ErrorCode.OPTION_INVALID,
                f"{option.name} is for {_kinds(option)}, and this is {_NAMES[self._where]}",
                option=option.name,
            )
        # The call for a schema does not show yet if a batch or a stream will be read.
        kinds = {"write"} if self._where == "write" else {"batch", "stream"}
        names = {each.name.lower(): each.name for each in OPTIONS if kinds & set(each.where)}
        nearest = difflib.get_close_matches(key.lower(), sorted(names), n=1, cutoff=0.5)
        hint = f"; did you mean {names[nearest[0]]}?" if nearest else ""
        detail = {"nearest": names[nearest[0]]} if nearest else {}
        return KafkaLogSparkError(
            ErrorCode.OPTION_UNKNOWN, f"unknown option {key!r}{hint}", option=key, **detail
        )

    def _warn_ignored(self) -> None:
        warning = "; ".join(self.ignored)
        if warning and warning not in _REPORTED:
            _REPORTED.add(warning)
            logger.warning("options without a meaning here: %s", warning)


_NAMES: Final[dict[Where, str]] = {
    "batch": "a batch read",
    "stream": "a stream",
    "write": "a write",
}


def _kinds(option: Option) -> str:
    return " and ".join(_NAMES[where] for where in option.where)


def _local_path(text: str) -> str:
    """Return the path of a file URI, and any other path as it is."""
    if "\0" in text:
        raise invalid("path", text, "a directory")
    parts = urlsplit(text)
    if len(parts.scheme) < 2:
        return text
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise KafkaLogSparkError(
            ErrorCode.UNSUPPORTED,
            f"{text}: only directories that the workers have mounted can be read",
            path=text,
        )
    path = unquote(parts.path)
    if not path:
        raise invalid("path", text, "a directory")
    return path
