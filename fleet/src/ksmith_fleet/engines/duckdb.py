"""DuckDB, inside this process: the default engine."""

from pathlib import Path

import duckdb
import pyarrow as pa

from ksmith_fleet.engines import Settings, question_text


class DuckDb:
    """An engine in memory, which spills to a directory beside the samples."""

    def __init__(self, samples: str, settings: Settings, memory: str | None = None) -> None:
        """Opens the samples."""
        self.connection = duckdb.connect()
        spill = Path(samples).resolve().parent / "spill"
        self.connection.execute(f"SET temp_directory = '{_quoted(str(spill))}'")
        if memory:
            self.connection.execute(f"SET memory_limit = '{_quoted(memory)}'")
        self.connection.execute(f"CREATE VIEW samples AS SELECT * FROM read_parquet('{_quoted(samples)}/*.parquet')")
        self.connection.execute(f"CREATE VIEW settings AS {settings.sql()}")

    def ask(self, question: str) -> pa.Table:
        """Answers the question of that name."""
        return self.connection.sql(question_text(question)).to_arrow_table()

    def save(self, question: str, path: str) -> int:
        """Writes the answer as Parquet below `path`, and gives the number of its rows."""
        Path(path).mkdir(parents=True, exist_ok=True)
        text = question_text(question)
        self.connection.execute(f"COPY ({text}) TO '{_quoted(path)}/answer.parquet' (FORMAT parquet)")
        row = self.connection.execute(f"SELECT COUNT(*) FROM read_parquet('{_quoted(path)}/answer.parquet')").fetchone()
        return int(row[0]) if row else 0

    def close(self) -> None:
        """Ends the engine."""
        self.connection.close()


def _quoted(text: str) -> str:
    return text.replace("'", "''")
