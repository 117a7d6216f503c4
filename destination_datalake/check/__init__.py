"""The connection check (`check`): validates a configuration with real requests to AWS, without starting Spark."""
