"""The connection check, which runs without Spark."""
