"""The Airbyte protocol: messages in, states and logs out. Imports neither AWS nor Spark."""
