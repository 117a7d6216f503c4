"""The systems with which the connector is compared."""
