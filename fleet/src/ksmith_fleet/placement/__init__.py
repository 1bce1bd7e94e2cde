"""Placement: which guest goes to which host, under memory, CPU, classes, trust domains, affinity, NUMA and pins."""
