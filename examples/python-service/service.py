#!/usr/bin/env python3
"""A service with forked workers that each load the same data after the fork, as large Python services do.

Started from one parent the workers have the same addresses and the same hash seed. So workers that build the same objects
in the same order fill pages with the same content, references included. KSM can merge these pages.

Each worker has a catalogue of objects (the same in all), a table of bytes (the same in all) and a cache (its own). The
parent asks workers in turn, changes some of what they hold, and checks every answer against its own arithmetic; at the
end each worker goes through all it holds. Prints "ready" and, when it is done, one JSON object. Only needs Python 3 and
Linux.

    ksmith run -- python3 service.py --workers 6 --records 60000 --seconds 30
"""

import argparse
import hashlib
import json
import os
import random
import select
import socket
import sys
import time


def record(number, version):
    """What the catalogue says of a number: arithmetic, so that the parent can check it without a catalogue."""
    return {"name": f"item {number}", "price": number * 7 % 1000, "version": version, "tags": [number % 10, number % 7]}


class Worker:
    """One worker's data, and its answers."""

    def __init__(self, options):
        self.catalogue = {number: record(number, 0) for number in range(options.records)}
        self.table = random.Random(1).randbytes(options.table << 20)
        self.cache = os.urandom(options.cache << 20)

    def answer(self, question):
        if "get" in question:
            return self.catalogue[question["get"]]
        if "set" in question:
            self.catalogue[question["set"]] = record(question["set"], question["version"])
            return "done"
        return {"digest": self.digest(), "memory": memory()}

    def digest(self):
        """Over all records and the table: every page that can be merged is read."""
        whole = hashlib.sha256(self.table)
        for number, entry in self.catalogue.items():
            whole.update(f"{number} {entry}".encode())
        return whole.hexdigest()


def expected_digest(options, versions):
    whole = hashlib.sha256(random.Random(1).randbytes(options.table << 20))
    for number in range(options.records):
        whole.update(f"{number} {record(number, versions.get(number, 0))}".encode())
    return whole.hexdigest()


def memory():
    """This process's RSS (counts merged pages in full), PSS (divides them) and merged pages, in bytes."""
    found = {}
    with open("/proc/self/smaps_rollup") as file:
        for line in file:
            words = line.split()
            if words[0] in ("Rss:", "Pss:"):
                found[words[0][:-1].lower() + "_bytes"] = int(words[1]) * 1024
    found["merged_bytes"] = 0
    try:
        with open("/proc/self/ksm_stat") as file:
            figures = dict(line.replace(":", "").split() for line in file)
        pages = int(figures.get("ksm_merging_pages", 0)) + int(figures.get("ksm_zero_pages", 0))
        found["merged_bytes"] = pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass  # An older kernel.
    return found


def serve(options, stream):
    worker = Worker(options)
    print(json.dumps("ready"), file=stream, flush=True)
    for line in stream:
        print(json.dumps(worker.answer(json.loads(line))), file=stream, flush=True)


def fork_all(options):
    """Everything the parent needs is made before the first fork, so that all workers start from the same heap: else
    each would put its objects a little further on, and no page with references would equal another's."""
    pairs = [socket.socketpair() for _ in range(options.workers)]
    for identity in range(options.workers):
        if os.fork() == 0:
            for ours, _ in pairs:
                ours.close()
            with pairs[identity][1].makefile("rw") as stream:
                serve(options, stream)
            os._exit(0)
    for _, theirs in pairs:
        theirs.close()
    return [ours.makefile("rw") for ours, _ in pairs]


def ask(stream, question):
    print(json.dumps(question), file=stream, flush=True)
    return json.loads(stream.readline())


def goes_on(options, elapsed):
    if options.seconds > 0:
        return elapsed < options.seconds
    return not select.select([sys.stdin], [], [], 0)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--records", type=int, default=60000, help="objects in each worker's catalogue")
    parser.add_argument("--table", type=int, default=16, help="MiB of bytes that are the same in all workers")
    parser.add_argument("--cache", type=int, default=16, help="MiB that each worker has for itself")
    parser.add_argument("--seconds", type=float, default=20.0, help="0: until standard input ends")
    parser.add_argument("--rate", type=float, default=500.0, help="questions per second")
    options = parser.parse_args()

    workers = fork_all(options)
    for stream in workers:
        stream.readline()
    print("ready", flush=True)
    began, wrong, asked = time.monotonic(), 0, 0
    versions = [{} for _ in workers]
    chance = random.Random(2)
    while goes_on(options, now := time.monotonic() - began):
        at = asked % len(workers)
        number = chance.randrange(options.records)
        asked += 1
        if asked % 50 == 0:
            versions[at][number] = asked
            wrong += ask(workers[at], {"set": number, "version": asked}) != "done"
        else:
            wrong += ask(workers[at], {"get": number}) != record(number, versions[at].get(number, 0))
        time.sleep(max(0.0, asked / options.rate - now))
    states = [ask(stream, {"all": True}) for stream in workers]
    for state, changed in zip(states, versions):
        wrong += state["digest"] != expected_digest(options, changed)
    for stream in workers:
        stream.close()
    for _ in workers:
        os.wait()
    total = {key: sum(state["memory"][key] for state in states) for key in states[0]["memory"]}
    print(json.dumps({"workers": options.workers, "asked": asked, "wrong": wrong, **total}))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
