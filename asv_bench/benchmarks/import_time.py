"""Cost of `import kafkalog` in a fresh interpreter."""

from __future__ import annotations


class ImportTime:
    """Whole imports, NumPy included where it is needed."""

    def timeraw_import_kafkalog(self):
        """The package and all of its public names."""
        return "import kafkalog"

    def timeraw_import_errors(self):
        """The exceptions alone."""
        return "import kafkalog.errors"
