"""The service: admission and metrics over HTTP, and a plan each night."""
