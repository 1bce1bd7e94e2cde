"""Runs the same questions on DuckDB and on Spark's standalone cluster, over made-up rows, and compares every row of the answers.

python bench/scale.py DIR --millions 1 3 10 30 100 [--spark]

Each guest has 1000 rows: 50 contents that all guests hold, 50 that an eighth holds, 300 of an image of 20 guests, and 600 of its own.
With --spark a master and two workers are started on loopback. DIR/scale.jsonl gets a line for each engine, question and size.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import duckdb

from ksmith_fleet.engines import Settings, open_engine

QUESTIONS = ("totals", "contents", "pairs")
SETTINGS = Settings(popular_above=100, min_common=50)


def make(directory: Path, millions: float) -> Path:
    """Makes the rows with DuckDB."""
    samples = directory / f"rows-{millions:g}" / "samples"
    if samples.exists():
        return samples
    part = samples.with_name("part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    guests = int(millions * 1000)
    step = 10_000
    for begin in range(0, guests, step):
        end = min(begin + step, guests)
        duckdb.sql(f"""
            COPY (
                SELECT CAST(g AS INTEGER) AS guest, CAST(g // 10 AS INTEGER) AS host,
                    CAST(hash(CASE WHEN j < 50 THEN 0 WHEN j < 100 THEN 1 + g % 8 WHEN j < 400 THEN 100 + g % {max(1, guests // 20)}
                        ELSE 1000000000 + g END, j) >> 6 AS BIGINT) AS fingerprint,
                    CAST(1 + (hash(g, j) % 5 = 0)::INTEGER AS INTEGER) AS copies
                FROM range({begin}, {end}) AS guests(g), range(1000) AS rows(j)
            ) TO '{part}/{begin:08}.parquet' (FORMAT parquet, COMPRESSION zstd)""")
    part.rename(samples)
    return samples


def run(engine_name: str, samples: Path, out: Path, master: str | None, memory: str) -> None:
    """Runs in a process of its own, so that its memory is its own. Prints a line for each question."""
    begin = time.monotonic()
    engine = open_engine(engine_name, str(samples), SETTINGS, master, memory)
    start = time.monotonic() - begin
    for question in QUESTIONS:
        begin = time.monotonic()
        rows = engine.save(question, str(out / engine_name / question))
        line = {"question": question, "rows": rows, "seconds": round(time.monotonic() - begin, 2), "start_seconds": round(start, 2)}
        print(json.dumps(line), flush=True)
    print(json.dumps({"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}), flush=True)
    engine.close()


class Cluster:
    """Spark's master and two workers on loopback."""

    def __init__(self, directory: Path) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        env = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(directory / "work"),
            "SPARK_LOCAL_DIRS": str(directory / "local"),
            "PYSPARK_PYTHON": sys.executable,
        }
        os.environ.update(env)
        self.master = "spark://127.0.0.1:17077"
        spark = str(home / "bin" / "spark-class")
        log = (directory / "spark.log").open("w")
        start = [spark, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "17077", "--webui-port", "17080"]
        self.processes = [subprocess.Popen(start, stdout=log, stderr=log, env=env)]
        time.sleep(8)
        for number in (1, 2):
            worker = [
                spark,
                "org.apache.spark.deploy.worker.Worker",
                "--host",
                "127.0.0.1",
                "--webui-port",
                str(17080 + number),
                "--cores",
                "1",
                "--memory",
                "3g",
                self.master,
            ]
            self.processes.append(subprocess.Popen(worker, stdout=log, stderr=log, env=env))
        time.sleep(8)

    def peak_mib(self) -> int:
        """Sums the peaks of all Java processes below the workers and the master."""
        total = 0
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                text = status.read_text()
                if b"17077" in (status.parent / "cmdline").read_bytes() or b"CoarseGrainedExecutor" in (status.parent / "cmdline").read_bytes():
                    total += int(text.split("VmHWM:")[1].split()[0]) // 1024
            except (OSError, IndexError):
                continue
        return total

    def stop(self) -> None:
        """Ends what was started."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()


def differences(one: Path, two: Path) -> int:
    """Counts the rows that only one of two answers has."""
    a, b = f"read_parquet('{one}/*.parquet')", f"read_parquet('{two}/*.parquet')"
    names = [row[0] for row in duckdb.sql(f"DESCRIBE SELECT * FROM {a}").fetchall()]
    columns = ", ".join(f"CAST({name} AS HUGEINT) AS {name}" for name in names)
    found = duckdb.sql(f"""SELECT COUNT(*) FROM (
        (SELECT {columns} FROM {a} EXCEPT ALL SELECT {columns} FROM {b}) UNION ALL
        (SELECT {columns} FROM {b} EXCEPT ALL SELECT {columns} FROM {a}))""").fetchall()
    return int(found[0][0])


def main() -> None:
    """Runs all sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--millions", type=float, nargs="+", default=[1.0, 3.0, 10.0])
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--memory", default="4GB", help="memory limit of DuckDB")
    parser.add_argument("--only", nargs=3, metavar=("ENGINE", "SAMPLES", "OUT"))
    parser.add_argument("--master")
    options = parser.parse_args()
    directory = options.directory.resolve()
    if options.only:
        engine, samples, out = options.only
        run(engine, Path(samples), Path(out), options.master, options.memory)
        return
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "scale.jsonl").open("a") as log:

        def say(line: dict[str, object]) -> None:
            log.write(json.dumps(line) + "\n")
            log.flush()
            print(json.dumps(line), flush=True)

        for millions in options.millions:
            samples = make(directory, millions)
            out = samples.parent / "answers"
            for engine in ("duckdb", "spark") if options.spark else ("duckdb",):
                cluster = Cluster(directory) if engine == "spark" else None
                command = [sys.executable, __file__, str(directory), "--only", engine, str(samples), str(out)]
                command += ["--memory", "2g" if cluster else options.memory] + (["--master", cluster.master] if cluster else [])
                try:
                    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=(directory / f"{engine}.err").open("a"), text=True) as process:
                        assert process.stdout is not None
                        for line in process.stdout:
                            said = json.loads(line) | {"engine": engine, "millions": millions}
                            if cluster and "peak_mib" in said:
                                said["cluster_peak_mib"] = cluster.peak_mib()
                            say(said)
                    if process.returncode:
                        say({"engine": engine, "millions": millions, "failed": process.returncode})
                finally:
                    if cluster:
                        cluster.stop()
            if options.spark:
                for question in QUESTIONS:
                    count = differences(out / "duckdb" / question, out / "spark" / question)
                    say({"compare": question, "millions": millions, "different_rows": count})


if __name__ == "__main__":
    main()
