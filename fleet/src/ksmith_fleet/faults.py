"""The fault of a sketch that cannot be trusted."""


class BadSketchError(Exception):
    """A file is no sketch that can be trusted; the text says why."""
