"""DuckDB, inside this process, which answers the questions of `sql/` over the samples."""

from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

import duckdb
import pyarrow as pa

QUESTIONS = ("totals", "incidence", "alone", "hosts", "popular", "pairs", "popular_pairs")
"""The questions, each a file in `sql/`."""


@dataclass(frozen=True)
class Settings:
    """The values that questions take, as a view of one row."""

    popular_above: int = 200
    """A content that more guests hold is popular."""
    min_common: int = 8
    """Pairs with fewer sampled contents in common are not listed."""
    max_sharing: int = 256
    """The pages that one frame of KSM takes (`max_page_sharing`)."""

    most_pairs: int = 10_000
    """The pairs that are listed at most."""
    ranking_mask: int = 3
    """Pairs are chosen by the contents with fingerprints that have none of these bits, one less than a power of two. With 0 all count."""

    incidence_mask: int = 0
    """Of the shared contents only those with fingerprints that have none of these bits are fetched."""

    @property
    def ranking_part(self) -> float:
        """The part of all contents by which pairs are chosen."""
        return 1.0 / (self.ranking_mask + 1)

    def sql(self) -> str:
        """Gives the view as a query."""
        return "SELECT " + ", ".join(f"CAST({value:d} AS BIGINT) AS {name}" for name, value in asdict(self).items())


class Engine:
    """A database in memory, which spills to a directory beside the samples."""

    def __init__(self, samples: Path, places: pa.Table, rate_bits: int, settings: Settings, memory_bytes: int | None = None) -> None:
        """Opens the Parquet files of a directory. `places` says which guests of which file they are of, at the rate `2^-rate_bits`."""
        self.settings = settings
        self.connection = duckdb.connect()
        spill = samples.resolve().parent / "spill"
        self.connection.execute(f"SET temp_directory = '{_quoted(str(spill))}'")
        if memory_bytes:
            self.connection.execute(f"SET memory_limit = '{memory_bytes} B'")
        self.connection.register("places_given", places)
        self.connection.execute("CREATE TABLE places AS SELECT * FROM places_given")
        # Samples are nested: a file of a higher rate has those of the lower one below its threshold.
        below = f"WHERE fingerprint BETWEEN 0 AND {(1 << (64 - rate_bits)) - 1}" if rate_bits else ""
        self.connection.execute(
            "CREATE VIEW samples AS SELECT places.guest, places.host, fingerprint, copies, residual, "
            f"CAST(CEIL(copies / {settings.max_sharing:d}) AS BIGINT) AS frames "
            f"FROM read_parquet('{_quoted(str(samples))}/*.parquet') AS rows "
            f"JOIN places ON places.file = rows.file AND places.stored_guest = rows.stored_guest {below}"
        )
        self.connection.execute(f"CREATE VIEW settings AS {settings.sql()}")
        self.connection.execute(f"CREATE VIEW on_host AS {_text('on_host')}")

    def ask(self, question: str, **tables: pa.Table) -> pa.Table:
        """Answers the question of that name, with these tables beside the samples."""
        for name, table in tables.items():
            self.connection.register(name, table)
        return self.connection.sql(question_text(question)).to_arrow_table()

    def interrupt(self) -> None:
        """Ends the question that another thread asks now."""
        self.connection.interrupt()

    def close(self) -> None:
        """Ends the engine."""
        self.connection.close()


def question_text(question: str) -> str:
    """Reads the SQL of a question."""
    if question not in QUESTIONS:
        raise ValueError(f"there is no question {question}; there are {', '.join(QUESTIONS)}")
    return _text(question)


def _text(name: str) -> str:
    return resources.files("ksmith_fleet").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


def _quoted(text: str) -> str:
    return text.replace("'", "''")
