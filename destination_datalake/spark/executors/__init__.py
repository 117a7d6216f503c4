"""What executors on other machines need: a Python with the connector, which is compared with the driver's."""
