"""Carries out a plan: prints or runs one live migration after the other."""
