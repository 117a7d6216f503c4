"""Executors on other machines: send the connector to them, and verify that their Python matches the driver's."""
