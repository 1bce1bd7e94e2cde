"""Engines that run the questions of `sql/`: the same text on each."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Protocol

import pyarrow as pa

QUESTIONS = ("totals", "contents", "incidence", "alone", "hosts", "popular", "pairs")
"""The questions that every engine answers, each a file in `sql/`."""


@dataclass(frozen=True)
class Settings:
    """The values that questions take, as a view of one row."""

    popular_above: int = 200
    """A content that more guests hold is popular."""
    min_common: int = 8
    """Pairs with fewer sampled contents in common are not listed."""
    max_sharing: int = 256
    """The pages that one frame of KSM takes (`max_page_sharing`)."""

    def sql(self) -> str:
        """Gives the view as a query."""
        return (
            f"SELECT CAST({self.popular_above:d} AS BIGINT) AS popular_above, "
            f"CAST({self.min_common:d} AS BIGINT) AS min_common, CAST({self.max_sharing:d} AS BIGINT) AS max_sharing"
        )


class Engine(Protocol):
    """What runs SQL over the samples."""

    def ask(self, question: str) -> pa.Table:
        """Answers the question of that name."""

    def save(self, question: str, path: str) -> int:
        """Writes the answer as Parquet below `path`, and gives the number of its rows."""

    def close(self) -> None:
        """Ends the engine."""


def question_text(question: str) -> str:
    """Reads the SQL of a question."""
    if question not in QUESTIONS:
        raise ValueError(f"there is no question {question}; there are {', '.join(QUESTIONS)}")
    return resources.files("ksmith_fleet").joinpath("sql", f"{question}.sql").read_text(encoding="utf-8")


def open_engine(name: str, samples: str, settings: Settings, master: str | None = None, memory: str | None = None) -> Engine:
    """Starts an engine over the Parquet files of a directory."""
    makers: dict[str, Callable[[], Engine]] = {}

    def duck() -> Engine:
        from ksmith_fleet.engines.duckdb import DuckDb

        return DuckDb(samples, settings, memory)

    def spark() -> Engine:
        from ksmith_fleet.engines.spark import Spark

        return Spark(samples, settings, master or "local[*]", memory)

    makers = {"duckdb": duck, "spark": spark}
    if name not in makers:
        raise ValueError(f"there is no engine {name}; there are {', '.join(makers)}")
    return makers[name]()
