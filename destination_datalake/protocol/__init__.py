"""The Airbyte protocol: input messages, and the output of states and logs. Imports neither AWS clients nor Spark."""
