"""Throughput, start-up time and memory of the connector, beside the machine's limit and the older way."""
