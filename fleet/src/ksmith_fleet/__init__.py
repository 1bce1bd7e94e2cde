"""Puts guests where their pages are equal, over any number of hosts, from the sketches that `ksmith sketch` writes."""
