"""Simulated fleets: a generator that is fitted to real guests, and policies that place the guests it makes."""
