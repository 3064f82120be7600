"""No entry points: other modules cimport the header writer."""
