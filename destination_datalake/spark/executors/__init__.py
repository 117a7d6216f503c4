"""Executors on other machines: send them the connector, and compare their Python with the driver's."""
