"""Reports: one HTML file without references to other files, and metrics for Prometheus."""
