"""Measure the throughput, start-up time and memory of the connector, and compare them with reference systems."""
