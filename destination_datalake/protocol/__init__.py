"""The Airbyte protocol: messages in, states and logs out. Knows neither AWS nor Spark."""
