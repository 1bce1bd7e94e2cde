"""Numbers that options take. One that is negative, endless or no number would be read as no limit, or as another one."""

import argparse
import math
import re


def amount(text: str) -> float:
    """Takes a number from 0 on."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 on")
    return value


def count(text: str) -> int:
    """Takes a whole number from 0 on."""
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 on")
    return int(text)


def memory_bytes(text: str) -> int:
    """Takes a size of memory, such as 4GB or 512MiB."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)\s*([KMGT])(i?)B?", text.strip(), re.IGNORECASE)
    if not found:
        raise ValueError(f"{text[:40]!r} is no size of memory, such as 4GB or 512MiB")
    number, unit, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** ("KMGT".index(unit.upper()) + 1))


def some(text: str) -> int:
    """Takes a whole number from 1 on."""
    value = count(text)
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return value


def part(text: str) -> float:
    """Takes a number from 0 to 1."""
    value = amount(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 1")
    return value
