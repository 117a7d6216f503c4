"""The connection check, without Spark."""
