"""Apache Spark, for fleets that one machine is too small for. It comes with the extra `ksmith-fleet[spark]`."""

from typing import Any

import pyarrow as pa

from ksmith_fleet.engines import Settings, question_text


class Spark:
    """A session with a Spark master. Its workers must reach the directory of the samples under the same path."""

    def __init__(self, samples: str, settings: Settings, master: str, memory: str | None = None) -> None:
        """Connects and opens the samples."""
        try:
            from pyspark.sql import SparkSession
        except ImportError as error:
            raise RuntimeError("there is no pyspark here: pip install 'ksmith-fleet[spark]'") from error
        builder: Any = (
            SparkSession.builder.master(master)
            .appName("ksmith-fleet")
            .config("spark.sql.ansi.enabled", "true")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "64")
        )
        if memory:
            builder = builder.config("spark.executor.memory", memory).config("spark.driver.memory", memory)
        self.session = builder.getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")
        self.session.read.parquet(f"file://{samples}" if samples.startswith("/") else samples).createOrReplaceTempView("samples")
        self.session.sql(settings.sql()).createOrReplaceTempView("settings")

    def ask(self, question: str) -> pa.Table:
        """Answers the question of that name."""
        return self.session.sql(question_text(question)).toArrow()

    def save(self, question: str, path: str) -> int:
        """Writes the answer as Parquet below `path`, and gives the number of its rows."""
        self.session.sql(question_text(question)).write.mode("overwrite").parquet(path)
        return int(self.session.read.parquet(path).count())

    def close(self) -> None:
        """Ends the session."""
        self.session.stop()
