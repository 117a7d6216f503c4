"""Executors on other machines: send the connector to them, and compare their Python with the driver's."""
